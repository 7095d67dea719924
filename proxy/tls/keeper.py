"""The current TLS context. It is rebuilt when its files change, and kept when the new files are invalid."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from proxy.config.sections.credentials import CredentialsError, TlsFiles, expires_at_s


class ContextKeeper:
    """One context and the files behind it. Open connections keep the context that they began with.

    Args:
        place: its section in messages, such as `listener.default.tls`.
        make: makes a context from the files; raises `CredentialsError`.
    """

    def __init__(self, place: str, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        self.place = place
        self._files = files
        self._make = make
        self._digest = files.digest()
        self.context = make(files)
        self.expires_at_s = self._expiry()

    def refresh(self) -> bool:
        """Check the files; return whether there is a new context.

        Raises:
            CredentialsError: the files changed and cannot be used; raised once for each change.
        """
        digest = self._files.digest()
        if digest == self._digest:
            return False
        self._digest = digest
        self.context = self._make(self._files)
        self.expires_at_s = self._expiry()
        return True

    def _expiry(self) -> float | None:
        if self._files.certificate is None:
            return None
        try:
            return expires_at_s(self._files.certificate)
        except CredentialsError:
            return None
