"""A program's login at brokers: `Login("SCRAM-SHA-512", "admin", password)`."""

from __future__ import annotations

import base64
import json
import secrets
from typing import Final, NoReturn

from protocol.sasl.client import client_of
from protocol.sasl.exchange import LoginSteps, login_steps
from protocol.sasl.mechanisms import OAUTHBEARER, PLAIN, SCRAM

MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER)


class Login:
    """An account at the brokers. Its secret is never printed.

    Args:
        mechanism: `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512` or `OAUTHBEARER`.
        username: "" with OAUTHBEARER, whose token contains the user.
        secret: the password, or the token.
    """

    __slots__ = ("_secret", "mechanism", "username")

    def __init__(self, mechanism: str, username: str, secret: str) -> None:
        if mechanism not in MECHANISMS:
            raise ValueError(f"{mechanism!r} is not a supported mechanism; write {', '.join(MECHANISMS)}")
        self.mechanism = mechanism
        self.username = username
        self._secret = secret

    @classmethod
    def of_unsecured_token(cls, subject: str, now_s: float, lifetime_s: float = 3_600) -> Login:
        """Return a login with an unsigned bearer token, which only brokers configured for tests accept."""
        claims = {"sub": subject, "iat": int(now_s), "exp": int(now_s + lifetime_s)}
        return cls(OAUTHBEARER, "", f"{_encoded({'alg': 'none'})}.{_encoded(claims)}.")

    def steps(self, client_id: str) -> LoginSteps:
        """Return the requests of one login; each needs the response to the one before it."""
        client = client_of(self.mechanism, self.username, self._secret, secrets.token_urlsafe(24))
        return login_steps(self.mechanism, client, client_id)

    def reveal(self) -> str:
        """Return the password, or the token, for a library that logs in by itself."""
        return self._secret

    def __repr__(self) -> str:
        return f"Login({self.mechanism!r}, {self.username!r}, ***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a login is not written down")


def _encoded(table: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(table, separators=(",", ":")).encode()).decode().rstrip("=")
