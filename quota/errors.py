"""Errors of `quota`. Exceeding a quota is not an error: it is a number of milliseconds."""


class QuotaError(Exception):
    """An invalid quota, entity or name; the message says which and why."""


class SanitizedNameError(QuotaError):
    """A percent-encoded name with a malformed escape."""
