"""Errors of input. The text is the one line on stderr; the command line maps the class to an exit code."""


class PipelineError(Exception):
    """The root of all errors that the pipeline raises on purpose."""


class BadInputError(PipelineError):
    """Invalid input: a file of another program or schema version, an option with an impossible value (exit 2)."""


class IncompleteError(PipelineError):
    """Data that the manifests promise are missing, or there are no data (exit 3)."""
