"""Sluice logs in at a broker itself: for its own questions only, never for a client."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from protocol.messages.sasl import (
    AUTHENTICATE,
    authenticate_request,
    handshake_request,
    read_authenticate_answer,
    read_handshake_error,
    read_mechanisms,
)
from protocol.sasl.client import TokenRefusedError, client_of
from proxy.config_login import Credentials
from proxy.host_port import HostPort
from proxy.net.own_connection import CLIENT_ID, OwnConnection, own_connection
from proxy.printable import printable
from proxy.secret import Secret
from proxy.tls.brokers import TlsBrokers
from proxy.tls.credentials import CredentialsError

_ROUNDS_MAX: Final = 4
_ILLEGAL_SASL_STATE: Final = 34
_UNSUPPORTED_MECHANISM: Final = 33
_FIRST_CORRELATION_ID: Final = 1_000


class LoginFailedError(Exception):
    """The broker did not let Sluice in, or there is no secret to try; says why, and nothing of a secret."""


async def log_in(connection: OwnConnection, credentials: Credentials, secret: Secret | None = None) -> None:
    """Log in on a new connection; `secret` where it was read already.

    Raises:
        LoginFailedError: the broker said no, or the secret cannot be read.
        OSError, asyncio.IncompleteReadError: the connection is gone.
        ProtocolError: the broker's answer cannot be read.
    """
    mechanism = credentials.mechanism
    answer = await connection.ask(handshake_request(_FIRST_CORRELATION_ID, CLIENT_ID, mechanism))
    _check_handshake(read_handshake_error(answer), mechanism, answer)
    try:
        if secret is None:
            secret = await asyncio.to_thread(credentials.secret)
        client = client_of(mechanism, credentials.username or "", secret.reveal(), secrets.token_urlsafe(24))
        token: bytes | None = client.first()
        for round_ in range(1, _ROUNDS_MAX):
            assert token is not None
            frame = await connection.ask(authenticate_request(_FIRST_CORRELATION_ID + round_, CLIENT_ID, token))
            said = read_authenticate_answer(AUTHENTICATE, frame)
            if said.error_code:  # its text may name the user, and is the broker's own
                raise LoginFailedError(
                    f"the broker refused {mechanism} (error {said.error_code}): is the user there, is the password right?"
                )
            token = await asyncio.to_thread(client.answer, frame[slice(*said.token)])  # SCRAM works for some milliseconds
            if token is None:
                return
    except CredentialsError as error:
        raise LoginFailedError(str(error)) from error
    except TokenRefusedError as error:
        raise LoginFailedError(f"{mechanism}: {error}") from error
    raise LoginFailedError(f"{mechanism}: the broker came to no end")


def _check_handshake(error: int, mechanism: str, answer: bytes) -> None:
    if error == _UNSUPPORTED_MECHANISM:
        possible = printable(", ".join(read_mechanisms(answer)), 200)
        raise LoginFailedError(f"the broker does not take {mechanism}, but {possible or 'none'}")
    if error == _ILLEGAL_SASL_STATE:
        raise LoginFailedError("this listener of the broker takes no login")
    if error:
        raise LoginFailedError(f"the broker refused the handshake (error {error})")


async def ask_as(credentials: Credentials | None, frame: bytes, address: HostPort, tls: TlsBrokers | None, timeout_ms: int) -> bytes:
    """Send one whole request to a broker as `credentials` (None: without a login) and return its whole answer.

    The connection is a new one and is closed behind it.

    Raises:
        LoginFailedError: no login, so nothing was asked.
        OSError: no connection, no answer (`TimeoutError`), or the broker hung up.
        ProtocolError: what came back is no answer.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000), own_connection(address, tls) as connection:
            if credentials is not None:
                await connection.versions()
                await log_in(connection, credentials)
            return await connection.ask(frame)
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError(f"{address}: the broker hung up") from error
