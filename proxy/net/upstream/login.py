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
    """The broker did not let Sluice in, or there is no secret to try; says why, and nothing of a secret."""


async def log_in(connection: BrokerClient, credentials: Credentials, secret: Secret | None = None) -> None:
    """Log in on a new connection; `secret` where it was read already.

    Raises:
        LoginFailedError: the broker said no, or the secret cannot be read.
        OSError, asyncio.IncompleteReadError: the connection is gone.
        ProtocolError: the broker's answer cannot be read.
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
