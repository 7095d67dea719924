"""Errors outside the data path."""


class ProxyError(Exception):
    """The root of all errors that Sluice raises on purpose outside `protocol` and `quota`."""


class StartError(ProxyError):
    """Sluice cannot start: its text is the one line that stderr gets, and the exit code is 2."""
