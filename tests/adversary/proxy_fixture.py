"""A complete proxy on virtual time, in front of a broker model, and what a client got through it."""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Any, NamedTuple
from unittest import mock

import proxy.app.app
from pipeline.validation.rules.long_run import ceiling
from proxy.app.app import App
from proxy.app.data_path import DataPath
from proxy.base.close_reason import CloseReason
from proxy.base.host_port import HostPort
from proxy.config.load import ConfigSource
from proxy.config.model import Config, Enforcement, Limits, Listener, Quotas, Upstream
from proxy.enforcement.groups.group_factory import PLAIN
from proxy.enforcement.mode import AGE_MAX_MS
from proxy.enforcement.paced.group import PacedGroup
from proxy.shared_usage.segment import Segment
from proxy.shared_usage.shared_groups import Shared
from proxy.shared_usage.shared_usage import SharedUsage
from proxy.telemetry import log
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType
from quota.groups.group import QuotaGroup
from quota.manager import QuotaGroups
from tests.adversary.broker_model import BrokerModel
from tests.adversary.greedy_client import GreedyClient
from tests.adversary.kept import kept_bytes
from tests.adversary.memory_tcp import Address, KernelLoop, kernel_in_memory
from tests.adversary.newcomer import newcomers_wait_ms
from tests.adversary.program import Program
from tests.adversary.virtual_loop import clock_of
from tests.support.step_watch import StepWatch

BROKER = ("192.0.2.200", 9_092)
PROXY = ("192.0.2.100", 9_092)
ROWS_MAX = 256
WINDOW_S = 11.0
BURST_MS = 1_000
HEADER_BYTES = 16 * 128
"""More than the parts of Fetch responses before their records, for as many fetches as one step sends."""
SESSION_BYTES = 8 << 20
"""Bytes that pass at the end of a SASL session despite a throttle, so that the session can be renewed."""
AHEAD_S = 10.0
"""Bytes that all connections of a group may send before the verdict: the capacity of a window."""
UNSENT_BYTES = 768 * 1024
"""Bytes that one connection may buffer until the budget is checked: less than 512 KiB, and a read."""
TABLES_BYTES = 2 << 20
"""Bytes that the tables of names, heads and groups may keep."""
CLEAN_MS = 75_000
"""The time after the last client has closed at which no state of it remains."""
UNIT_S = 0.000_250
"""The charge of a small request that takes `service_us` as below: no measurement contradicts it."""
UNIT_SERVICE_US = 400
ESTIMATE = 1.25
"""Request time is an estimate: for other kinds of requests, and at other times, it is slightly lower."""

FEW_GROUPS = {"groups_max": 24, "groups_per_user_max": 4}
"""The size of tables that a client can fill up: small, since a program has few steps."""
NEWCOMER_MS = 20.0
"""The longest wait of two small requests of a client far below its bound, the broker's time included."""
MUTATION_RATE = 1e9
"""A quota that is never reached: the proxy reads topic requests only where a mutation quota exists."""

Spoil = Callable[[], AbstractContextManager[object]]


class Outcome(NamedTuple):
    """The result of a program.

    Attributes:
        passed: units that passed, of the group with the highest ratio; allowed: how many its quota allows by then.
        ratio: the highest of `passed / allowed` at any time.
        unrecorded: units that passed and were never recorded.
        connections: the largest number of connections that could pass something at once.
        faults: errors of the proxy itself, and connections that are never closed.
        trace: one line per step.
    """

    passed: float
    allowed: float
    ratio: float
    unrecorded: float
    connections: int
    faults: tuple[str, ...]
    trace: tuple[str, ...]


class _Source(ConfigSource):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self._config = config

    def load(self) -> Config:
        return self._config


class ProxyFixture:
    """One run of one program."""

    def __init__(self, loop: KernelLoop, program: Program, watch: StepWatch) -> None:
        self.watch = watch
        said = self.circumstances = program.circumstances
        self.program = program
        self.loop = loop
        self.broker = BrokerModel(
            loop,
            loop.kernel,
            BROKER,
            service_us=said.service_us,
            accepts_logins=said.logs_in,
            session_ms=said.session_ms,
            metadata_bytes=said.metadata_bytes,
            answer_items=said.answer_items,
        )
        addresses = [(PROXY[0], PROXY[1] + number) for number in range(said.workers)]
        segment = Segment.create(said.workers, ROWS_MAX, 11, 1_000) if said.workers > 1 else None
        self.apps = [self._app(_config(program, address), number, segment) for number, address in enumerate(addresses)]
        self.client = GreedyClient(loop, loop.kernel, addresses, logs_in=said.logs_in)
        self.connections_max = 0
        self.peak = (0.0, 1.0, -1.0)
        self.newcomer_waited_ms = 0.0
        self.trace: list[str] = []
        self._began_ms = loop.now_ms

    def _app(self, config: Config, number: int, segment: Segment | None) -> App:
        """Return a proxy; with a segment it is the worker of this number, and publishes its usage when that is due."""
        shared = PLAIN if segment is None else SharedUsage(segment, number)
        if isinstance(shared, SharedUsage):
            loop = self.loop

            def publish_within(within_ms: int, usage: SharedUsage = shared) -> None:
                loop.call_later(within_ms / 1_000, lambda: usage.publish_noted(within_ms, loop.now_ms))

            shared.on_unpublished = publish_within
        with mock.patch.object(proxy.app.app, "DataPath", functools.partial(DataPath, factories=shared)):
            app = App(config, _Source(config))
        app.scopes.apply_table(_table(self.program))
        return app

    async def run(self) -> Outcome:
        """Run the program; check during the run what has passed."""
        loop, program = self.loop, self.program
        for app in self.apps:
            app.client_listeners.open()
            app.gateway.start()
        end_ms = self._began_ms + program.seconds * 1_000
        for step in islice(_repeated(program), program.steps_max):
            if loop.now_ms >= end_ms:
                break
            await self.client.take(step)
            self._look()
            self.trace.append(f"{loop.now_ms - self._began_ms:>6} ms  {step.action} on {step.slot}: {self._standing()}")
        while loop.now_ms < end_ms:
            await loop.until_ms(min(loop.now_ms + 1_000, end_ms))
            self._look()
        if self.circumstances.goal == "newcomer":
            self.newcomer_waited_ms = await newcomers_wait_ms(loop, PROXY)
            self._look()
        self.trace.append(f"{loop.now_ms - self._began_ms:>6} ms  the end: {self._standing()}")
        self.client.leave()
        await loop.until_ms(loop.now_ms + CLEAN_MS)
        self._look()
        outcome = Outcome(*self.peak, self._unrecorded(), self.connections_max, tuple(self._faults()), tuple(self.trace))
        for app in self.apps:
            app.client_listeners.close(CloseReason.SHUTDOWN)
            await app.gateway.close()
            app.scopes.close()
        return outcome

    # --- what has passed, and what is allowed to pass

    def _passed(self) -> dict[str, float]:
        """Return the units that have passed, by group."""
        goal = self.circumstances.goal
        if goal == "memory":
            return {"": float(kept_bytes(self.apps) + max(0, self._unsent() - UNSENT_BYTES * self.connections_max))}
        if goal == "items":
            return {"": float(self.watch.most)}
        if goal == "newcomer":
            return {"": self.newcomer_waited_ms}
        if goal == "request":
            return {"": 100.0 * UNIT_S * self.broker.timed}
        counted = self.broker.produced if goal == "produce" else self.client.fetched
        if self.circumstances.each_client_id:
            return {name: float(units) for name, units in counted.items()}
        return {"": float(sum(counted.values()))}

    def _allowed(self) -> float:
        """Return the units that one group is allowed by now, see docs/explanation/adversary.md."""
        said = self.circumstances
        if said.goal == "memory":
            return said.bound + TABLES_BYTES
        if said.goal == "items":
            return said.bound
        if said.goal == "newcomer":
            return NEWCOMER_MS
        elapsed_s = (self.loop.now_ms - self._began_ms) / 1_000
        largest = self._largest()
        connections = max(1, self.connections_max)
        if said.paced:
            in_time = said.bound * (self.loop.now_ms - self._began_ms + BURST_MS) / 1_000  # exact for whole bytes
            if said.goal == "request":
                return ESTIMATE * (in_time + self._once_paced(largest, elapsed_s))
            return in_time + self._once_paced(largest, elapsed_s) + self._sessions_ended() * SESSION_BYTES
        cap_s = 1.0 if said.goal == "request" else AGE_MAX_MS / 1_000
        k = connections * largest / said.bound
        rounds = math.floor(elapsed_s / cap_s) + 1
        ahead = AHEAD_S * said.bound if self.client.pipelines else 0.0
        once = connections * largest + ahead + rounds * min(largest, cap_s * said.bound)
        inexact = ESTIMATE if said.goal == "request" else 1.0
        return inexact * (said.bound * ceiling(k, cap_s) * (elapsed_s + WINDOW_S) + once) + self._sessions_ended() * SESSION_BYTES

    def _once_paced(self, largest: float, elapsed_s: float) -> float:
        """Return the units beyond bound and burst that a schedule lets pass: one request, and one more in 25 s before its time.

        A request that keeps a group membership passes before its time once in a second on each connection. Each further worker may pass
        one request before it knows of that of another one.
        """
        age_s = AGE_MAX_MS / 1_000
        if self.circumstances.goal == "fetch":  # `max_bytes` does not count the header of a response
            largest += HEADER_BYTES * max(1, self.connections_max)
        once = largest * self.circumstances.workers
        if self.circumstances.goal == "request":
            once = largest = largest * (1 + max(1, self.connections_max) * (math.floor(elapsed_s) + 1))
        return once + math.floor(elapsed_s / age_s) * min(largest, age_s * self.circumstances.bound)

    def _largest(self) -> float:
        goal = self.circumstances.goal
        if goal == "request":
            return 100.0 * UNIT_S
        return float(self.broker.largest_bytes if goal == "produce" else self.client.asked_bytes_max)

    def _sessions_ended(self) -> int:
        return self.client.sessions if self.circumstances.session_ms else 0

    def _open(self) -> int:
        """Return how many connections can still pass something: their client is connected, or some of its bytes have not passed yet."""
        found = self.client.opened_since_quiet
        for connection in (one for app in self.apps for one in app.gateway.connections):
            sock: Any = connection.client_sock
            session = connection.session
            found += not sock.peer.closed or bool(sock.inbox or session.requests.pending.kept_bytes or session.in_flight)
        return found + self.broker.deserted

    def _look(self) -> None:
        self.connections_max = max(self.connections_max, self._open())
        passed = max(self._passed().values(), default=0.0)
        allowed = self._allowed()
        if passed / allowed > self.peak[2]:
            self.peak = (passed, allowed, passed / allowed)

    def _unsent(self) -> int:
        """Return how many bytes are written for clients and brokers and not yet accepted."""
        gateways = [app.gateway for app in self.apps]
        connections = (one for gateway in gateways for one in (*gateway.connections, *gateway._closing))
        channels = (channel for one in connections for channel in (one.client, one.broker))
        return sum(0 if one.transport is None or one.lost else one.transport.get_write_buffer_size() for one in channels)

    def _standing(self) -> str:
        return f"{max(self._passed().values(), default=0.0):.0f} of {self._allowed():.0f}, {self._open()} open"

    def _groups(self) -> list[QuotaGroup]:
        goal = self.circumstances.goal
        if goal in ("memory", "items", "newcomer"):
            return []
        return [
            group
            for app in self.apps
            for scope in app.scopes.all()
            for group in {"produce": scope.produce, "fetch": scope.fetch, "request": scope.request}[goal].groups()
        ]

    def _unrecorded(self) -> float:
        """Return the units that passed and were not recorded. Time is left out, since some of it counts for no client."""
        if self.circumstances.goal in ("request", "memory", "items", "newcomer"):
            return 0.0
        slack = self.client.fetches if self.circumstances.goal == "fetch" else 0  # a byte of the header that Kafka does not count
        return max(0.0, sum(self._passed().values()) - slack - sum(map(_own_total, self._groups())))

    def _faults(self) -> list[str]:
        apps, gateways = self.apps, [app.gateway for app in self.apps]
        for group in self._groups():
            if isinstance(group, PacedGroup):
                group.refresh(self.loop.now_ms)  # what other workers have in flight is known when a request is checked
        found = [f"{fault.get('message')}: {fault.get('exception')!r}" for fault in self.loop.faults]
        wrong = {
            "errors of our own": sum(app.counters.internal_errors for app in apps),
            "connections that stay": sum(len(app.gateway.connections) + app.counters.connections_open for app in apps),
            "sockets that stay": len([sock for sock in self.loop.kernel.sockets.values() if sock.peer_name == BROKER]),
            "timers that stay": sum(len(gateway.timers) for gateway in gateways),
            "usage under way that never comes": sum(group.pending for group in self._groups()),
        }
        return found + [f"{count} {what}" for what, count in wrong.items() if count]


def _repeated(program: Program) -> Any:
    yield from program.before
    while program.steps:
        yield from program.steps


def _own_total(group: QuotaGroup) -> float:
    """Return the units that a group has recorded, without those that other workers have used."""
    return group.own_total if isinstance(group, Shared) else group.recorded_total


def _config(program: Program, address: Address) -> Config:
    said = program.circumstances
    listener: dict[str, Any] = {"address": HostPort(*address), "name": "test"}
    if said.logs_in:
        listener |= {"protocol": "SASL_PLAINTEXT", "insecure_plain": True}
    return Config(
        upstream=Upstream(bootstrap=(HostPort(*BROKER),)),
        listeners=(Listener(**listener),),
        # all workers know the node id of a broker from their supervisor, which is not here
        enforcement=Enforcement(mode=said.mode, scope="broker" if said.workers == 1 else "cluster"),  # type: ignore[arg-type]
        quotas=Quotas(path=None, pacing="paced") if said.paced else Quotas(path=None),
        limits=Limits(process_buffer_bytes_max=int(said.bound)) if said.goal == "memory" else Limits(),
    )


def _table(program: Program) -> Any:
    said = program.circumstances
    entity = ClientQuotaEntity(None, DEFAULT) if said.each_client_id else ClientQuotaEntity(DEFAULT, None)
    if said.goal == "memory":
        return {}
    if said.goal == "items":
        return {ClientQuotaType.CONTROLLER_MUTATION: {entity: MUTATION_RATE}}
    wanted = {"fetch": ClientQuotaType.FETCH, "request": ClientQuotaType.REQUEST}
    return {wanted.get(said.goal, ClientQuotaType.PRODUCE): {entity: said.bound}}


def run(program: Program, spoil: Spoil | None = None) -> Outcome:
    """Run a program from the beginning; `spoil` introduces a fault into the proxy for the run."""
    loop = KernelLoop()
    try:
        with ExitStack() as stack:
            if spoil is not None:
                stack.enter_context(spoil())
            stack.enter_context(mock.patch.object(log.LOGGER, "disabled", True))
            stack.enter_context(clock_of(loop))
            stack.enter_context(kernel_in_memory(loop.kernel))
            if program.circumstances.goal == "newcomer":
                stack.enter_context(mock.patch.dict(QuotaGroups.__init__.__kwdefaults__, FEW_GROUPS))
            watch = stack.enter_context(StepWatch())

            async def main() -> Outcome:
                return await ProxyFixture(loop, program, watch).run()

            return loop.run_until_complete(main())
    finally:
        loop.drop_timers()
        loop.close()
