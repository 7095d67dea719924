"""The tokens of the admin port. A process without an admin port imports this file, and no HTTP server."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

from proxy.quota_admin.requester import Right

if TYPE_CHECKING:
    from proxy.config.sections.admin import AdminToken


class Tokens:
    """The valid tokens, stored as digests."""

    def __init__(self, configured: Iterable[AdminToken] = ()) -> None:
        """Read the configured tokens.

        Raises:
            CredentialsError: one cannot be read.
        """
        self._known: list[tuple[bytes, str, Right]] = []
        self.read(configured)

    def read(self, configured: Iterable[AdminToken]) -> None:
        """Read them again; when one cannot be read, the previous ones stay valid.

        Raises:
            CredentialsError: one cannot be read.
        """
        self._known = [(_digest(token.secret()), token.name, token.role) for token in configured]

    def __bool__(self) -> bool:
        return bool(self._known)

    def holder(self, presented: bytes) -> tuple[str, Right] | None:
        """Return name and right of a token, in a time that does not depend on the token."""
        digest, found = _digest(presented), None
        for known, name, right in self._known:
            if hmac.compare_digest(known, digest):
                found = (name, right)
        return found


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()
