"""Errors of input. The message is one line on stderr; the command line maps each class to an exit code."""


class PipelineError(Exception):
    """Base class of all errors that the pipeline raises on purpose."""


class BadInputError(PipelineError):
    """Invalid input: a file of another program or schema version, or an invalid option value (exit 2)."""


class IncompleteError(PipelineError):
    """Data that the manifests list are missing, or there are no data at all (exit 3)."""


def missing_file(path: object, file_set: str) -> IncompleteError:
    """Return the error for a file that the manifest of a file set lists, and that is not there."""
    return IncompleteError(f"{path}: is missing, and manifest {file_set} lists it; restore it")
