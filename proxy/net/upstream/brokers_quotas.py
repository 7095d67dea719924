"""Reads the quotas stored in the brokers, with Sluice's own login if it has one."""

from __future__ import annotations

import asyncio
import contextlib

from protocol.api_keys import ApiKey
from protocol.errors import ProtocolError
from protocol.messages.client_quotas import describe_request, read_describe_answer
from proxy.config.sections.login import Credentials
from proxy.net.upstream.broker_client import CLIENT_ID, own_connection
from proxy.net.upstream.connector import Bootstrap
from proxy.net.upstream.login import LoginFailedError, log_in
from proxy.quota_store.forward import BrokersUnavailable, StoredQuotas
from proxy.tls.brokers import TlsBrokers
from quota.admin.messages import CLUSTER_AUTHORIZATION_FAILED, entity_key
from sluice.broker_client import BrokerClient, version_of

VERSIONS = (1, 0)


class BrokersQuotas:
    """Queries one broker after another, on a connection that is kept."""

    def __init__(self, bootstrap: Bootstrap, tls: TlsBrokers | None, credentials: Credentials | None, timeout_ms: int) -> None:
        self._bootstrap = bootstrap
        self._tls = tls
        self._credentials = credentials
        self._timeout_ms = timeout_ms
        self._open: contextlib.AsyncExitStack | None = None
        self._connection: BrokerClient | None = None
        self._version = 0
        self._number = 0

    async def read(self) -> StoredQuotas:
        """Return all quotas, and Sluice's address as the brokers see it.

        Raises:
            BrokersUnavailable: no broker answered; the message is one line with the reason and a remedy.
        """
        address = self._bootstrap.current()
        try:
            async with asyncio.timeout(self._timeout_ms / 1_000):
                connection = self._connection or await self._connect()
                self._number += 1
                frame = describe_request(self._version, self._number, CLIENT_ID, [], strict=False)
                answer = read_describe_answer(self._version, await connection.ask(frame))
        except (OSError, ProtocolError, LoginFailedError, asyncio.IncompleteReadError) as error:
            await self.close()
            self._bootstrap.failed(address)
            raise BrokersUnavailable(f"{address}: {str(error) or type(error).__name__}") from error
        if answer.error_code == CLUSTER_AUTHORIZATION_FAILED:
            raise BrokersUnavailable(f"{address}: Sluice may not see quotas; give its account DESCRIBE_CONFIGS on the cluster")
        if answer.entries is None or answer.error_code:
            raise BrokersUnavailable(f"{address}: error {answer.error_code} {answer.error_message or ''}")
        quotas = {entity_key(entry.entity): dict(entry.values) for entry in answer.entries}
        return StoredQuotas(quotas, connection.own_host)

    async def close(self) -> None:
        """Close the connection; the next `read` connects anew."""
        self._connection = None
        if self._open is not None:
            stack, self._open = self._open, None
            await stack.aclose()

    async def _connect(self) -> BrokerClient:
        await self.close()
        self._open = contextlib.AsyncExitStack()
        connection = await self._open.enter_async_context(own_connection(self._bootstrap.current(), self._tls))
        version = version_of(await connection.versions(), ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSIONS)
        if version is None:
            raise ProtocolError("the broker is older than 2.6 and describes no quotas; choose another store")
        if self._credentials is not None:
            await log_in(connection, self._credentials)
        self._version, self._connection = version, connection
        return connection
