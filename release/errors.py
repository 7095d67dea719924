"""The error of this package."""


class ReleaseError(Exception):
    """A release cannot be built; the text is one line with the remedy."""
