"""Errors of `quota`. Being over quota is not an error: it is a number of milliseconds."""


class QuotaError(Exception):
    """A quota, entity or name that cannot be; the message says which and why."""


class SanitizedNameError(QuotaError):
    """A percent-encoded name with a malformed escape."""
