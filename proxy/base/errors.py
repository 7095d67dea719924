"""Errors outside the data path."""


class ProxyError(Exception):
    """The base class of all errors that Sluice raises outside `protocol` and `quota`."""


class StartError(ProxyError):
    """Sluice cannot start: the text is printed as one line on stderr, and the exit code is 2."""
