"""A whole login of Sluice's own, request by request. It does no I/O: the caller sends each request and passes the response in.

Source: Kafka 3.8 `SaslClientAuthenticator`.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final

from protocol.messages.sasl import (
    AUTHENTICATE,
    authenticate_request,
    handshake_request,
    read_authenticate_answer,
    read_handshake_error,
    read_mechanisms,
)
from protocol.sasl.client import SaslClient, TokenRefusedError

ROUNDS_MAX: Final = 3
"""SCRAM takes two."""
FIRST_CORRELATION_ID: Final = 1_000
_ILLEGAL_SASL_STATE: Final = 34
_UNSUPPORTED_MECHANISM: Final = 33
_NAME: Final = re.compile(r"[A-Z0-9_-]{1,64}")

LoginSteps = Generator[bytes, bytes, int]
"""Yields requests and receives responses; returns the session lifetime in ms, 0 for the whole connection."""


def login_steps(mechanism: str, client: SaslClient, client_id: str) -> LoginSteps:
    """Log in with a mechanism; `client` is the client's side of it.

    A step may take some milliseconds of computation with SCRAM.

    Raises:
        TokenRefusedError: the broker refused; the text contains no secret.
        ProtocolError: a response is invalid.
    """
    answer = yield handshake_request(FIRST_CORRELATION_ID, client_id, mechanism)
    _check_handshake(read_handshake_error(answer), mechanism, answer)
    token: bytes | None = client.first()
    for round_ in range(1, ROUNDS_MAX + 1):
        assert token is not None
        frame = yield authenticate_request(FIRST_CORRELATION_ID + round_, client_id, token)
        result = read_authenticate_answer(AUTHENTICATE, frame)
        if result.error_code:  # its text is the broker's own and may name the user
            raise TokenRefusedError(
                f"the broker refused {mechanism} (error {result.error_code}): check that the user exists and that the password is right"
            )
        try:
            token = client.answer(frame[slice(*result.token)])
        except TokenRefusedError as error:
            raise TokenRefusedError(f"{mechanism}: {error}") from error
        if token is None:
            return result.session_lifetime_ms or 0
    raise TokenRefusedError(f"{mechanism}: the broker did not complete the login")


def _check_handshake(error: int, mechanism: str, answer: bytes) -> None:
    if error == _UNSUPPORTED_MECHANISM:
        possible = ", ".join(filter(_NAME.fullmatch, read_mechanisms(answer)))[:200]
        raise TokenRefusedError(f"the broker does not support {mechanism}; it supports {possible or 'none'}")
    if error == _ILLEGAL_SASL_STATE:
        raise TokenRefusedError("this listener of the broker accepts no login")
    if error:
        raise TokenRefusedError(f"the broker refused the handshake (error {error})")
