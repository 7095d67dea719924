"""A complete Sluice in this process, in front of scripted brokers, with a check that nothing of it is left afterwards."""

import asyncio
import contextlib
import gc
import itertools
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec

from proxy.app.app import App
from proxy.base.clock import now_ms
from proxy.base.host_port import HostPort
from proxy.config.load import ConfigSource
from proxy.config.model import Config, Enforcement, EnforcementMode, Limits, Listener, Quotas, Upstream
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.quota_scopes import QuotaTable
from proxy.net.accept.bound_listener import BoundListener
from proxy.net.connection import Connection
from proxy.net.gateway import Gateway
from proxy.session.buffers import BufferAccount
from proxy.telemetry.counters import Counters
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType
from tests.support.ports import free_bootstrap_port
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import API_VERSIONS, METADATA, api_versions_request, correlation_id_of, metadata_request
from tests.support.scripted.scripted_sockets import HOST, guarded, until

RUNS_PER_UNFREEZE = 50
"""An App freezes all objects at its start. Unfreezing them after each test slows down every collection; never doing so leaks Apps."""
_RUNS = itertools.count(1)
EVERYBODY = ClientQuotaEntity(None, DEFAULT)


class FixedSource(ConfigSource):
    """A configuration that a test assigns and `App.reload` reads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def load(self) -> Config:
        """Return the configuration that was assigned last."""
        return self.config


class RunningGateway:
    """A serving App, its clients, and its state before they connected."""

    def __init__(self, app: App, source: FixedSource, brokers: tuple[ScriptedBroker, ...]) -> None:
        self.app = app
        self.source = source
        self.brokers = brokers
        self.clients: list[ScriptedClient] = []
        self.loop_errors: list[dict[str, Any]] = []
        """What the loop's exception handler received."""
        self.expects_internal_errors = False
        self._descriptors = 0

    @property
    def gateway(self) -> Gateway:
        """The gateway with its listeners and connections."""
        return self.app.gateway

    @property
    def counters(self) -> Counters:
        """The counters of the process."""
        return self.app.counters

    @property
    def buffers(self) -> BufferAccount:
        """The buffer budget of its connections."""
        return self.app.data_path.session_settings.buffers

    @property
    def closes(self) -> dict[str, int]:
        """Ended connections by reason."""
        return self.app.counters.closes

    @property
    def listeners(self) -> Sequence[BoundListener]:
        """The listeners as configured."""
        return self.app.client_listeners.listeners

    @property
    def port(self) -> int:
        """The bootstrap port."""
        return self.listeners[0].bootstrap_port

    @property
    def connections(self) -> list[Connection]:
        """Open connections, oldest first."""
        return list(self.gateway.connections)

    def broker_port(self, node_id: int) -> int:
        """Return the port at which clients reach a broker."""
        port = self.listeners[0].client_port(node_id)
        assert port is not None, f"broker {node_id} has no port"
        return port

    async def client(self, port: int | None = None, **options: Any) -> ScriptedClient:
        """Return a client that is closed when the test ends; `port` None: the bootstrap port."""
        client = await ScriptedClient.connect(self.port if port is None else port, **options)
        self.clients.append(client)
        return client

    async def until_connections(self, count: int) -> list[Connection]:
        """Wait until this many clients are connected to a broker."""
        await until(lambda: len(self.gateway.connections) == count)
        return self.connections

    async def until_closed(self, reason: str, count: int = 1) -> None:
        """Wait until this many connections ended for this reason."""
        await until(lambda: self.closes.get(reason, 0) >= count)

    def sweep(self, later_ms: int = 0) -> None:
        """Check the deadlines of connections as if this much time had passed."""
        self.gateway.connection_deadlines.sweep(now_ms() + later_ms)

    def set_quotas(self, table: QuotaTable) -> None:
        """Replace the quota table, as the quota file does."""
        self.app.scopes.apply_table(table)

    def groups(self) -> list[EnforcedGroup]:
        """Return every quota group of every scope."""
        return [group for scope in self.app.scopes.all() for manager in (scope.produce, scope.fetch) for group in manager.groups()]

    async def reload(self, **changes: Any) -> bool:
        """Change fields of the configuration and reload."""
        self.source.config = msgspec.structs.replace(self.source.config, **changes)
        return await self.app.reload()

    async def assert_clean(self, *, serves: bool = True) -> None:
        """Assert that no connection, waiter, descriptor or error is left, and that a new client is served.

        Args:
            serves: False when no broker runs any more.
        """
        if serves:
            await self._serve_a_fresh_client()
        for client in self.clients:
            client.close()
        gateway = self.gateway
        await until(self._sweeps_up)
        assert self.buffers.reserved_bytes == 0
        assert len(gateway.timers) == 0
        assert self.counters.connections_open == 0
        assert not gateway.connection_deadlines._progress
        assert not gateway.connection_deadlines._backlogs
        assert len(gateway.disconnect_watcher) == 0
        assert [group.pending for group in self.groups() if group.pending] == []
        for broker in self.brokers:
            await broker.until_quiet()
        await until(lambda: _descriptors() <= self._descriptors)
        gc.collect()
        if not self.expects_internal_errors:
            assert self.counters.internal_errors == 0
            assert "internal_error" not in self.closes
            assert self.loop_errors == []

    def _sweeps_up(self) -> bool:
        """Whether every connection has ended; those of muted clients are found by the deadline check only."""
        gateway = self.gateway
        if gateway.connections:
            self.sweep()
        return not gateway.connections and not gateway._closing and not gateway._tasks

    async def _serve_a_fresh_client(self) -> None:
        """Serve a client that sends a client's usual first request; its broker answers without errors, whatever the script did before."""
        scripts = [broker.script for broker in self.brokers]
        for broker in self.brokers:
            broker.script = None
        try:
            async with await ScriptedClient.connect(self.port) as fresh:
                for key, frame in ((API_VERSIONS, api_versions_request(7)), (METADATA, metadata_request(7))):
                    assert correlation_id_of(await fresh.ask(frame)) == 7, key
        finally:
            for broker, script in zip(self.brokers, scripts, strict=True):
                broker.script = script

    def remember_descriptors(self) -> None:
        """Record the open descriptors, which may be open at the end."""
        self._descriptors = _descriptors()

    def allow_descriptors(self, more: int) -> None:
        """Allow two descriptors for each port that was bound meanwhile."""
        self._descriptors += more


def quotas(
    *, produce: float | None = None, fetch: float | None = None, request: float | None = None, client_id: str = DEFAULT
) -> QuotaTable:
    """Return a table with bytes per second and percent of a thread for one client-id, or for all by default."""
    entity = EVERYBODY if client_id == DEFAULT else ClientQuotaEntity(None, client_id)
    rates = {ClientQuotaType.PRODUCE: produce, ClientQuotaType.FETCH: fetch, ClientQuotaType.REQUEST: request}
    return {quota_type: {entity: float(rate)} for quota_type, rate in rates.items() if rate is not None}


def config_for(
    *brokers: ScriptedBroker,
    mode: EnforcementMode = "delay",
    delay_max_ms: int = 5_000,
    limits: Mapping[str, int] | None = None,
    quotas_file: Any = None,
    **settings: Any,
) -> Config:
    """Return the configuration of a gateway in front of `brokers` on free loopback ports; `settings` are fields of Config."""
    values: dict[str, Any] = {
        "upstream": Upstream(bootstrap=tuple(HostPort(HOST, broker.port) for broker in brokers)),
        "listeners": (Listener(address=HostPort(HOST, free_bootstrap_port()), name="test"),),
        "enforcement": Enforcement(mode=mode, delay_max_ms=delay_max_ms),
        "limits": Limits(**(limits or {})),
        "quotas": Quotas(path=quotas_file),
    }
    return Config(**{**values, **settings})


@contextlib.asynccontextmanager
async def open_gateway(
    *brokers: ScriptedBroker,
    table: QuotaTable | None = None,
    probed: bool = True,
    clean: bool = True,
    serves: bool = True,
    **settings: Any,
) -> AsyncIterator[RunningGateway]:
    """Run a Sluice in front of `brokers`; when the block ends without an error, `assert_clean` must hold.

    Args:
        brokers: the upstream bootstrap, in this order.
        table: the quotas at the start.
        probed: whether to wait until Sluice has probed its broker; False when none runs.
        clean: whether to call `assert_clean` at the end.
        serves: as in `assert_clean`.
        settings: see `config_for`.
    """
    loop = asyncio.get_running_loop()
    thresholds = gc.get_threshold()
    source = FixedSource(config_for(*brokers, **settings))
    app = App(source.config, source)
    running = RunningGateway(app, source, brokers)
    previous = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: running.loop_errors.append(context))
    try:
        await app.start()
        if table is not None:
            running.set_quotas(table)
        if probed:
            await _until_met(running)
        running.remember_descriptors()
        yield running
        if clean:
            await running.assert_clean(serves=serves)
    finally:
        for client in running.clients:
            client.close()
        await guarded(app.stop())
        loop.set_exception_handler(previous)
        if next(_RUNS) % RUNS_PER_UNFREEZE == 0:
            gc.unfreeze()
        gc.set_threshold(*thresholds)


async def _until_met(running: RunningGateway) -> None:
    """Wait until Sluice has read ApiVersions and Metadata, has bound the brokers' ports and has closed its connection."""
    await until(lambda: running.gateway.book.upstream != {} and running.app.prober.answered_ms is not None)
    await until(lambda: any(broker.probes for broker in running.brokers))
    await until(lambda: all(probe.ended is not None for broker in running.brokers for probe in broker.probes))


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
