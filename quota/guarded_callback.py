"""A user's callback, kept from doing harm."""

from quota.callback import ClientQuotaCallback


class GuardedCallback(ClientQuotaCallback):
    """Stands between the managers and a user's class."""

    def __init__(self, callback: ClientQuotaCallback) -> None:
        self._callback = callback
