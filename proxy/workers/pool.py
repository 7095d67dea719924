"""All workers: starts them, assigns connections, sends the shared state, and replaces a worker that dies."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from protocol.messages.metadata import Topology
from proxy.base.clock import now_ms
from proxy.base.close_reason import CloseReason
from proxy.config.load import ConfigSource
from proxy.config.problem import ConfigProblems, Problem
from proxy.enforcement.policy import Policy
from proxy.enforcement.quota_scopes import QuotaTable
from proxy.enforcement.switches import Switches
from proxy.net.accept.client_listeners import AdmittedConnection
from proxy.telemetry import log
from proxy.telemetry.counters import Counters, bump
from proxy.workers.announcements import Announcements
from proxy.workers.messaging.link import LinkLost
from proxy.workers.messaging.messages import (
    Accepting,
    AnyMessage,
    BrokerAddress,
    BrokerReached,
    CommitReload,
    ConnectionEnded,
    Drain,
    Failed,
    InForce,
    LoginFailed,
    MakeRoom,
    PageRequest,
    Prepared,
    PrepareReload,
    PrincipalConnectionEnded,
    Ready,
    Request,
    Start,
    Stop,
)
from proxy.workers.messaging.passing import PassedHandoverSocket, PassedPort
from proxy.workers.messaging.questions import AnyQuestion
from proxy.workers.processes.child import WorkerProcess, start_worker, watch_end
from proxy.workers.processes.fork_server import Spawn

ANSWER_S: Final = 1.0
"""Time limit for one worker's response to an alteration, a reload and a page."""
RETRY_S: Final = 0.01
EARLY_EXIT_MS: Final = 1_000
"""A worker that dies within this time after its start is restarted after the same time."""
END_S: Final = 5.0
"""Time limit for a worker to end after its last connection has ended."""
WAITING_MAX: Final = 256
"""Maximum number of connections that wait for a worker; while any waits, none is accepted."""


class WorkerPool:
    """Starts workers, passes each connection to the worker with the fewest connections, and keeps the state of workers equal.

    Args:
        on_left: called with listener name and address key of each connection that ended.
        on_login_failed: called with the address of each client whose login a broker refused.
        on_broker_met: called with each broker whose address a worker learned.
        answers: returns the response to a request of a worker.
        on_principal_left: called with type and name of the principal of each counted connection that ended.
        answer: returns the answer to a question of a worker.
        numbers: numbers of the workers; one worker is started for each.
        segment: descriptor of the segment of shared usage.
        on_death: called with the number of each worker that died.
        on_quotas: called with the generation of quotas after they were sent to all workers.
        is_responsive: whether the worker of a number has sent a heartbeat lately; an unresponsive worker gets connections last.
        spawn: starts a process.

    Attributes:
        workers: running workers by number.
        announcements: the shared state.
    """

    def __init__(
        self,
        source: ConfigSource,
        numbers: Sequence[int],
        counters: Counters,
        policy: Policy,
        *,
        on_left: Callable[[str, tuple[int, str]], None],
        on_login_failed: Callable[[tuple[str, int]], None],
        on_broker_met: Callable[[BrokerAddress], None],
        on_principal_left: Callable[[str, str], None],
        answers: Callable[[Request], Any],
        answer: Callable[[WorkerProcess, AnyQuestion], Any],
        segment: int,
        on_death: Callable[[int], None],
        on_quotas: Callable[[int], None],
        is_responsive: Callable[[int], bool],
        spawn: Spawn,
    ) -> None:
        self._source = source
        self._preparing: PrepareReload | None = None  # the reload in progress
        self._config_text = source.text  # the configuration in force, also for workers that start later
        self._numbers = list(numbers)
        self._shown: dict[PassedPort | PassedHandoverSocket, socket.socket] = {}
        self._counters = counters
        self._policy = policy
        self._on_left = on_left
        self._on_login_failed = on_login_failed
        self._on_broker_met = on_broker_met
        self._on_principal_left = on_principal_left
        self._answers = answers
        self._answer = answer
        self._segment = segment
        self._on_death = on_death
        self._is_responsive = is_responsive
        self._spawn = spawn
        self.workers: dict[int, WorkerProcess] = {}
        self._watches: dict[int, Callable[[], None]] = {}
        self._started_ms: dict[int, int] = {}
        self._starting: set[asyncio.Task[None]] = set()
        self._failed: list[str] = []
        self._changed = asyncio.Event()  # set when a worker is ready, has failed, has ended, or has quotas in force
        self.announcements = Announcements(self._broadcast, on_quotas)
        self._waiting: deque[AdmittedConnection] = deque()
        self._retry: asyncio.TimerHandle | None = None
        self._reloads = 0
        self._prepared: dict[tuple[int, int], Prepared] = {}
        self._serves = False
        self._ending = False

    # --- processes

    async def start(self) -> None:
        """Start all workers; return when all are ready.

        Raises:
            ConfigProblems: a worker cannot start.
        """
        for number in self._numbers:
            await self._start(number)
        while not self._failed and len(self._ready()) < len(self._numbers):
            self._changed.clear()
            await self._changed.wait()
        if self._failed:
            raise ConfigProblems([Problem(self._source.place, "workers", line, "see above") for line in self._failed])
        self._serves = True

    async def _start(self, number: int) -> None:
        worker = await start_worker(
            number,
            lambda message: self._received(number, message),
            self._answers,
            lambda: None,
            lambda question: self._answer(self.workers[number], question),
            self._segment,
            self._spawn,
        )
        try:
            self._watches[number] = watch_end(worker, lambda: self._ended(worker))
        except OSError:
            worker.kill()
            worker.close()
            raise
        self.workers[number] = worker
        self._started_ms[number] = now_ms()
        self._send_state(worker)

    def _send_state(self, worker: WorkerProcess) -> None:
        """Send a new worker the shared state, and a reload that is in progress."""
        path = self._source.path
        text, flags = self._config_text, self._source.flags
        worker.link.send(Start(None if path is None else str(path), text, flags, worker.number, self._numbers))
        if self._preparing is not None:
            worker.link.send(self._preparing)
        for message in self.announcements.all():
            worker.link.send(message)
        if self._ending:
            worker.link.send(Drain())
        for what, sock in self._shown.items():
            self._show_to(worker, what, sock)

    def show(self, what: PassedPort | PassedHandoverSocket, sock: socket.socket) -> None:
        """Pass a duplicate of a listening socket to every worker, now and at later starts; it stays open when this process dies."""
        self._shown[what] = sock
        for worker in self.workers.values():
            self._show_to(worker, what, sock)

    def _show_to(self, worker: WorkerProcess, what: PassedPort | PassedHandoverSocket, sock: socket.socket) -> None:
        if not worker.show(what, sock):
            self._try_soon()

    def _ended(self, worker: WorkerProcess) -> None:
        """Handle the end of a worker's process: its connections have ended, too."""
        number = worker.number
        worker.close()
        self._give_back(worker)
        self._changed.set()
        self._on_death(number)
        if self.workers.get(number) is not worker or self._ending:
            return
        del self.workers[number]
        if not self._serves:
            self._failed = self._failed or [f"worker {number} ended with exit code {worker.poll()} before it was ready"]
            return
        write_log = log.error if worker.poll() else log.info  # exit code 0: the worker was requested to end
        write_log("worker_died", worker=number, pid=worker.pid, exit_code=worker.poll(), connections=worker.connections)
        self._restart_later(number, 0 if now_ms() - self._started_ms[number] >= EARLY_EXIT_MS else EARLY_EXIT_MS)

    def _restart_later(self, number: int, wait_ms: int) -> None:
        task = asyncio.ensure_future(self._restart(number, wait_ms))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _restart(self, number: int, wait_ms: int) -> None:
        await asyncio.sleep(wait_ms / 1_000)
        try:
            if not self._ending:
                await self._start(number)
        except OSError as error:  # no free process or descriptor
            log.error("worker_not_started", limit_key="worker_not_started", worker=number, problem=error.strerror or str(error))
            self._restart_later(number, EARLY_EXIT_MS)

    def _give_back(self, worker: WorkerProcess) -> None:
        """Free the slots of a worker that has ended."""
        count = worker.slots.total()
        if count and not self._ending:
            bump(self._counters.closes, CloseReason.WORKER_DIED.value, count)
        for (listener, ip_key), times in list(worker.slots.items()):
            for _ in range(times):
                self._on_left(listener, ip_key)
        worker.slots.clear()
        for (kind, name), times in worker.principals.items():
            for _ in range(times):
                self._on_principal_left(kind, name)
        worker.principals.clear()

    def _ready(self) -> list[WorkerProcess]:
        return [worker for worker in self.workers.values() if worker.is_ready]

    async def drain(self, drain_ms: int) -> bool:
        """Let every worker forward responses in flight and end; False: a worker exceeded `drain_ms`."""
        self._ending = True
        self._broadcast(Drain())
        return await self._all_ended(drain_ms / 1_000 + END_S)

    async def _all_ended(self, timeout_s: float) -> bool:
        """Wait until no worker runs; False: a worker still runs after `timeout_s` seconds."""
        try:
            async with asyncio.timeout(timeout_s):
                while any(worker.poll() is None for worker in self.workers.values()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def stop(self) -> None:
        """End every worker now."""
        self._ending = True
        if self._retry is not None:
            self._retry.cancel()
        for task in list(self._starting):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._broadcast(Stop())
        if not await self._all_ended(END_S):
            for worker in self.workers.values():
                worker.kill()
            await self._all_ended(END_S)
        for number, worker in self.workers.items():
            self._watches[number]()
            worker.close()
        for admitted in self._waiting:
            admitted.arrival.sock.close()

    # --- connections

    def serve(self, admitted: AdmittedConnection) -> None:
        """Pass a connection to the worker with the fewest connections; while no worker takes it, it waits."""
        if self._waiting or not self._serve(admitted):
            self._waiting.append(admitted)
            self._try_soon()

    def _serve(self, admitted: AdmittedConnection) -> bool:
        for worker in sorted(self._ready(), key=self._load_key):
            try:
                worker.serve(admitted)
            except OSError:  # the queue is full, or the worker has ended
                continue
            return True
        return False

    def _load_key(self, worker: WorkerProcess) -> tuple[bool, int, int]:
        """Return the sort key of a worker: one without memory or without heartbeats comes last; equal workers take turns."""
        return not (worker.may_accept and self._is_responsive(worker.number)), worker.connections, worker.given

    def _try_soon(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        while self._waiting and self._serve(self._waiting[0]):
            self._waiting.popleft()
        unshown = [worker for worker in self.workers.values() if not worker.show_again()]
        if self._waiting or unshown:
            self._try_soon()

    def may_accept(self) -> bool:
        """Whether a worker accepts connections and has memory for them."""
        return len(self._waiting) < WAITING_MAX and any(worker.may_accept for worker in self._ready())

    def make_room(self, protected_listener: str) -> None:
        """Let the worker with the most connections of other listeners close one of these."""
        ready = self._ready()
        if ready:
            max(ready, key=lambda one: one.connections - one.of_listener[protected_listener]).link.send(MakeRoom(protected_listener))

    # --- shared state

    async def settled(self) -> None:
        """Wait until every worker uses the newest quotas, for at most 1 s, so that an unresponsive worker does not block the others."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while any(worker.generation < self.announcements.generation for worker in self._ready()):
                    self._changed.clear()
                    await self._changed.wait()
        for worker in self._ready():
            if worker.generation < self.announcements.generation:
                log.warning("worker_stale", limit_key="worker_stale", worker=worker.number, waited_s=ANSWER_S)

    def apply_table(self, _table: QuotaTable, _who: str | None) -> None:
        """Do nothing: workers receive the content of the store by `announcements`."""

    def apply_switches(self, table: Mapping[str, str]) -> bool:
        """Apply switches to new connections; workers receive them by `announcements`."""
        return self._policy.switch(Switches(table))

    def apply_pacing(self, table: Mapping[str, str]) -> None:
        """Do nothing: workers receive the content of the store by `announcements`."""

    @property
    def wants_cluster(self) -> bool:
        """Whether a callback of the workers needs topics, partitions and leaders."""
        return self.announcements.wants_cluster

    def learn_cluster(self, topology: Topology) -> None:
        """Send every worker the brokers and partitions."""
        self.announcements.learn_cluster(topology)

    async def reload(self, commit: Callable[[], None]) -> list[str]:
        """Let every worker check the new configuration, then let all workers apply it, or none; return the problems, one a line.

        A worker that does not respond within 1 s applies the configuration when it continues.
        """
        self._reloads += 1
        number = self._reloads
        asked = self._ready()
        text = self._source.text
        self._preparing = PrepareReload(number, text)
        self._broadcast(self._preparing)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWER_S):
                while any((number, worker.number) not in self._prepared for worker in asked):
                    self._changed.clear()
                    await self._changed.wait()
        lines = [line for worker in asked for line in self._prepared.pop((number, worker.number), Prepared(number, [])).lines]
        if not lines:
            self._config_text = text
            commit()
        self._preparing = None
        self._broadcast(CommitReload(number, not lines))
        return lines

    async def query_page(self, query: bytes) -> list[tuple[int, bytes | None]]:
        """Request each worker's part of a page of the admin port; None: the worker does not run, or does not respond within 1 s."""
        answers = await asyncio.gather(*(self._query_page(number, query) for number in self._numbers))
        return list(zip(self._numbers, answers, strict=True))

    async def _query_page(self, number: int, query: bytes) -> bytes | None:
        worker = self.workers.get(number)
        try:
            return None if worker is None or not worker.is_ready else await worker.link.ask(PageRequest(query), ANSWER_S)
        except LinkLost:
            return None

    # --- messages of workers

    def _received(self, number: int, message: AnyMessage) -> None:
        worker = self.workers.get(number)
        if worker is None:
            return
        if isinstance(message, ConnectionEnded):
            if worker.left(message.listener, message.ip_key):
                self._on_left(message.listener, message.ip_key)
        elif isinstance(message, LoginFailed):
            self._on_login_failed((message.host, message.port))
        elif isinstance(message, PrincipalConnectionEnded):
            self._principal_left(worker, message.kind, message.name)
        elif isinstance(message, Accepting):
            worker.may_accept = message.may_accept
        elif isinstance(message, BrokerAddress):
            self._on_broker_met(message)
        elif isinstance(message, BrokerReached):
            self.announcements.broker_reached(message)
        else:
            self._progressed(worker, message)
            self._changed.set()

    def _progressed(self, worker: WorkerProcess, message: AnyMessage) -> None:
        if isinstance(message, Ready):
            worker.is_ready = True
            log.info("worker_ready", worker=worker.number, pid=worker.pid)
        elif isinstance(message, Failed):
            self._failed += message.lines
            for line in message.lines if self._serves else ():
                log.error("worker_rejected", worker=worker.number, problem=line)
        elif isinstance(message, InForce):
            worker.generation = message.generation
        elif isinstance(message, Prepared):
            self._prepared[message.number, worker.number] = message

    def _principal_left(self, worker: WorkerProcess, kind: str, name: str) -> None:
        if worker.principals[kind, name] > 0:
            worker.principals[kind, name] -= 1
            self._on_principal_left(kind, name)

    def _broadcast(self, message: AnyMessage) -> None:
        for worker in self.workers.values():
            worker.link.send(message)
