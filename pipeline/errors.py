"""What can be wrong with input. The text is the one line that stderr gets; the command line maps the class to an exit code."""


class PipelineError(Exception):
    """The root of all errors that the pipeline raises on purpose."""


class BadInputError(PipelineError):
    """Not what the command takes: a file of another program or schema version, an option that cannot be (exit 2)."""


class IncompleteError(PipelineError):
    """Data that the manifests promise are not there, or nothing is (exit 3)."""
