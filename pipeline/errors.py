"""Errors of input. The message is one line on stderr; the command line maps each class to an exit code."""


class PipelineError(Exception):
    """Base class of all errors that the pipeline raises on purpose."""


class BadInputError(PipelineError):
    """Invalid input: a file of another program or schema version, or an invalid option value (exit 2)."""


class IncompleteError(PipelineError):
    """Data that the manifests list are missing, or there are no data at all (exit 3)."""
