"""Probes the brokers: for readiness, for the ports of brokers, and for the cluster that a callback receives.

It works without a login: brokers that require one still answer ApiVersions, and the topology then comes from
responses to clients.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.errors import ProtocolError
from protocol.messages.metadata import Topology, metadata_request, read_topology
from proxy.base.clock import now_ms
from proxy.base.host_port import HostPort
from proxy.base.offload import offload
from proxy.net.upstream.broker_client import CLIENT_ID, own_connection
from proxy.net.upstream.connector import Bootstrap
from proxy.net.upstream.own_login import OwnLogin
from proxy.tls.brokers import TlsBrokers
from sluice.broker_client import BrokerClient, version_of

RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
SOON_S, RETRY_SOON_MAX_S = 30.0, 0.8  # a broker that starts at the same time is found within a second
INTERVAL_S = 5.0
PARTITION_BYTES = 32  # of a response; one partition takes about this many
METADATA_VERSIONS = (9, 4, 1)  # the first version that the broker has; 4 and up create no topic


class Prober:
    """Polls the first bootstrap broker that answers.

    Attributes:
        login: state of Sluice's own login.
        answered_ms: when an upstream last answered; None: never.
        error: why the last attempt failed, None after a success.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        on_topology: Callable[[Topology], None],
        wants_topics: Callable[[], bool],
        on_change: Callable[[str | None], None],
        timeout_ms: int,
        tls: TlsBrokers | None,
        login: OwnLogin,
    ) -> None:
        self._tls = tls
        self.login = login
        self._bootstrap = bootstrap
        self._on_topology = on_topology
        self._wants_topics = wants_topics
        self._on_change = on_change
        self._timeout_ms = timeout_ms
        self._answers: bool | None = None  # what was reported last; None: nothing yet
        self.answered_ms: int | None = None
        self.error: str | None = None

    async def run(self) -> None:
        """Poll until cancelled; retries back off from 0.1 s to 5 s with jitter, within a second for the first half minute."""
        retry_s = RETRY_MIN_S
        answered_ms = now_ms()
        while True:
            address = self._bootstrap.current()
            try:
                async with asyncio.timeout(self._timeout_ms / 1000):
                    await self._probe(address)
            except (OSError, TimeoutError, ProtocolError, asyncio.IncompleteReadError) as error:
                self._note(f"{address}: {str(error) or type(error).__name__}")
                self._bootstrap.failed(address)
                await asyncio.sleep(retry_s * random.uniform(0.8, 1.2))  # noqa: S311 - jitter
                retry_s = next_retry_s(retry_s, (now_ms() - answered_ms) / 1_000)
                continue
            self._note(None)
            retry_s, answered_ms = RETRY_MIN_S, now_ms()
            await asyncio.sleep(INTERVAL_S)

    def _note(self, error: str | None) -> None:
        self.error = error
        if error is None:
            self.answered_ms = now_ms()
        if self._answers != (error is None):
            self._answers = error is None
            self._on_change(error)

    async def _probe(self, address: HostPort) -> None:
        async with own_connection(address, self._tls) as connection:
            ranges = await connection.versions()
            self.answered_ms = now_ms()
            version = version_of(ranges, ApiKey.METADATA, METADATA_VERSIONS)
            if version is not None and await self.login.may_ask(connection, now_ms()):
                await self._ask_metadata(connection, version)

    async def _ask_metadata(self, connection: BrokerClient, version: int) -> None:
        try:
            answer = await connection.ask(metadata_request(version, 2, CLIENT_ID, all_topics=self._wants_topics()))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.login.closed_by_broker()  # a broker that requires a login closes here; the topology then comes from responses to clients
            return
        self.login.answered()
        api = API_VERSIONS[ApiKey.METADATA << 16 | version]
        self._on_topology(await offload(len(answer) // PARTITION_BYTES, read_topology, api, answer))


def next_retry_s(retry_s: float, silent_s: float) -> float:
    """Return how long to wait after another failure: twice as long, up to a maximum that depends on the time without an answer."""
    return min(RETRY_SOON_MAX_S if silent_s < SOON_S else RETRY_MAX_S, retry_s * 2)
