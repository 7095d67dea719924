"""Asks the brokers who they are: readiness, broker ports bound early, and the cluster for a callback.

Needs no login: where brokers ask for one, ApiVersions is still answered, and topology comes from the answers that pass through.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.errors import ProtocolError
from protocol.messages import api_versions
from protocol.messages.metadata import Topology, metadata_request, read_topology
from proxy.clock import now_ms
from proxy.host_port import HostPort
from proxy.net.upstream import Bootstrap
from proxy.tls.brokers import TlsBrokers

RETRY_MIN_S, RETRY_MAX_S = 0.1, 5.0
SOON_S, RETRY_SOON_MAX_S = 30.0, 0.8  # a broker that starts together with us is met within a second
INTERVAL_S = 5.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
CLIENT_ID = "sluice"
METADATA_VERSIONS = (9, 4, 1)  # the first that the broker has; 4 and up create no topic


class Prober:
    """Polls the first bootstrap broker that answers.

    Attributes:
        answered_ms: when an upstream last answered; None: never.
        error: why the last attempt failed, None after one that did not.
    """

    def __init__(
        self,
        bootstrap: Bootstrap,
        on_topology: Callable[[Topology], None],
        wants_topics: Callable[[], bool],
        on_change: Callable[[str | None], None],
        timeout_ms: int,
        tls: TlsBrokers | None = None,
    ) -> None:
        self._tls = tls
        self._bootstrap = bootstrap
        self._on_topology = on_topology
        self._wants_topics = wants_topics
        self._on_change = on_change
        self._timeout_ms = timeout_ms
        self._answers: bool | None = None  # what was told last; None: nothing yet
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
        reader, writer = await self._connect(address)
        try:
            writer.write(api_versions.request_v0(1, CLIENT_ID))
            answer = await _read_frame(reader)
            ranges = {key: (low, high) for key, low, high in api_versions.read_api_keys(0, answer)}
            self.answered_ms = now_ms()
            low, high = ranges.get(ApiKey.METADATA, (0, -1))
            version = next((version for version in METADATA_VERSIONS if low <= version <= high), None)
            if version is not None:
                await self._ask_metadata(reader, writer, version)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _connect(self, address: HostPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._tls is None:
            return await asyncio.open_connection(address.host, address.port)
        name = self._tls.server_name(address)
        return await asyncio.open_connection(address.host, address.port, ssl=self._tls.keeper.context, server_hostname=name)

    async def _ask_metadata(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        writer.write(metadata_request(version, 2, CLIENT_ID, all_topics=self._wants_topics()))
        try:
            answer = await _read_frame(reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # a broker that asks for a login closes here; what it knows comes with the answers that pass through
        self._on_topology(read_topology(API_VERSIONS[ApiKey.METADATA << 16 | version], answer))


def next_retry_s(retry_s: float, silent_s: float) -> float:
    """Return how long to wait after one more failure: twice as long, up to what fits so long a silence."""
    return min(RETRY_SOON_MAX_S if silent_s < SOON_S else RETRY_MAX_S, retry_s * 2)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    size = int.from_bytes(length, "big", signed=True)
    if not 4 <= size <= ANSWER_BYTES_MAX:
        raise ProtocolError(f"answer of {size} bytes", reason="bad_response")
    return length + await reader.readexactly(size)
