"""Logs Sluice in at a broker, for its own requests only, never for a client."""

from __future__ import annotations

import asyncio

from protocol.sasl.client import TokenRefusedError
from proxy.base.host_port import HostPort
from proxy.base.secret import Secret
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.login import Credentials
from proxy.net.upstream.broker_client import CLIENT_ID, own_connection
from proxy.tls.brokers import TlsBrokers
from sluice.broker_client import BrokerClient, run_login
from sluice.login import Login


class LoginFailedError(Exception):
    """The broker refused Sluice's login, or the secret cannot be read; the message says why, without a secret."""


async def log_in(connection: BrokerClient, credentials: Credentials, secret: Secret | None = None) -> None:
    """Log in on a new connection; `secret` is given when it was read already.

    Raises:
        LoginFailedError: the broker refused, or the secret cannot be read.
        OSError, asyncio.IncompleteReadError: the connection was closed.
        ProtocolError: the broker's response is invalid.
    """
    try:
        if secret is None:
            secret = await asyncio.to_thread(credentials.secret)
        login = Login(credentials.mechanism, credentials.username or "", secret.reveal())
        await run_login(connection, login.steps(CLIENT_ID))
    except (CredentialsError, TokenRefusedError) as error:
        raise LoginFailedError(str(error)) from error


async def ask_as(credentials: Credentials | None, frame: bytes, address: HostPort, tls: TlsBrokers | None, timeout_ms: int) -> bytes:
    """Send one whole request to a broker as `credentials` (None: without a login) and return its whole answer.

    It uses a new connection, which is closed afterwards.

    Raises:
        LoginFailedError: the login failed, so the request was not sent.
        OSError: no connection, no response (`TimeoutError`), or the broker closed the connection.
        ProtocolError: the response is invalid.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1_000), own_connection(address, tls) as connection:
            if credentials is not None:
                await connection.versions()
                await log_in(connection, credentials)
            return await connection.ask(frame)
    except asyncio.IncompleteReadError as error:
        raise ConnectionResetError(f"{address}: the broker closed the connection") from error
