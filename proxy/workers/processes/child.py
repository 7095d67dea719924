"""The supervisor's view of one worker: its process, its sockets and its connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from proxy.net.accept.client_listeners import AdmittedConnection
from proxy.workers.messaging.link import Answers, Link
from proxy.workers.messaging.messages import AnyMessage
from proxy.workers.messaging.passing import PassedConnection, PassedHandoverSocket, PassedPort, pass_on, socket_pair
from proxy.workers.messaging.questions import AnyQuestion, QuestionResponder
from proxy.workers.processes.fork_server import ChildProcess, Spawn
from quota.connections.ip_connections import IpKey

Slot = tuple[str, IpKey]
"""The listener of a connection, and the key of its address."""


class WorkerProcess:
    """A started worker, as the supervisor sees it.

    Attributes:
        number: the worker's number; a worker that replaces it has the same.
        slots: listener and address key of each connection that was passed to it and has not been reported as ended.
        connections: number of these connections; `of_listener`: their number by listener.
        given: number of connections passed to it since its start.
        principals: principals of its connections that count against a limit.
        is_ready: whether it serves connections.
        may_accept: whether it has memory for more connections.
        generation: number of the quotas in use in it.
    """

    def __init__(self, number: int, process: ChildProcess, link: Link, passing: socket.socket, questions: QuestionResponder) -> None:
        self.number = number
        self._process = process
        self.link = link
        self._passing = passing
        self._questions = questions
        self.slots: Counter[Slot] = Counter()
        self.connections = 0
        self.of_listener: Counter[str] = Counter()
        self.given = 0
        self.principals: Counter[tuple[str, str]] = Counter()
        self.is_ready = False
        self.may_accept = True
        self.generation = 0
        self._unshown: deque[tuple[PassedPort | PassedHandoverSocket, socket.socket]] = deque()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def serve(self, admitted: AdmittedConnection) -> None:
        """Pass a connection to the worker and close the supervisor's descriptor of it.

        Raises:
            BlockingIOError: the worker's queue is full.
            OSError: the worker has ended.
        """
        arrival, name = admitted.arrival, admitted.listener.settings.name
        passed = PassedConnection(
            name, admitted.node_id, arrival.peer, arrival.since_ms, admitted.ip_key, int(arrival.sock.family), arrival.first
        )
        pass_on(self._passing, passed, arrival.sock)
        arrival.sock.close()
        self.slots[name, admitted.ip_key] += 1
        self.connections += 1
        self.of_listener[name] += 1
        self.given += 1

    def show(self, what: PassedPort | PassedHandoverSocket, sock: socket.socket) -> bool:
        """Pass a duplicate of a listening socket; False: the worker's queue is full, and `show_again` repeats it."""
        self._unshown.append((what, sock))
        return self.show_again()

    def show_again(self) -> bool:
        """Pass the duplicates for which the queue had no room; False: it is still full."""
        while self._unshown:
            try:
                pass_on(self._passing, *self._unshown[0])
            except BlockingIOError:
                return False
            except OSError:  # the worker has ended, or the listening socket is closed
                pass
            self._unshown.popleft()
        return True

    def left(self, listener: str, ip_key: IpKey) -> bool:
        """Remove a connection that has ended; False: the worker had no such connection."""
        slot = (listener, ip_key)
        if not self.slots[slot]:
            return False
        self.slots[slot] -= 1
        if not self.slots[slot]:
            del self.slots[slot]
        self.connections -= 1
        self.of_listener[listener] -= 1
        return True

    def kill(self) -> None:
        """Kill the process, if it runs."""
        self._process.kill()

    def poll(self) -> int | None:
        """Return the exit code; None: the process runs."""
        return self._process.poll()

    def close(self) -> None:
        """Close the supervisor's sockets to the worker."""
        self.link.close()
        self._passing.close()
        self._questions.close()


async def start_worker(
    number: int,
    on_message: Callable[[AnyMessage], None],
    answers: Answers,
    on_lost: Callable[[], None],
    answer: Callable[[AnyQuestion], Any],
    segment: int,
    spawn: Spawn,
) -> WorkerProcess:
    """Start a worker; its process waits for the first message, `Start`.

    Args:
        number: number of the worker.
        on_message, answers, on_lost: as in `Link`.
        answer: returns the answer to a question of the worker.
        segment: descriptor of the segment of shared usage.
        spawn: starts a process.

    Raises:
        OSError: there are not enough descriptors or there is not enough memory.
    """
    with contextlib.ExitStack() as here, contextlib.ExitStack() as there:
        ours, theirs = [], []
        for pair in (socket.socketpair, socket_pair, socket_pair):
            one, other = pair()
            ours.append(here.enter_context(one))
            theirs.append(there.enter_context(other))
        process = spawn("proxy.workers.main", [*(sock.fileno() for sock in theirs), segment])
        here.pop_all()
    link_here, passing_here, questions_here = ours
    passing_here.setblocking(False)
    link = await Link.over(link_here, on_message, answers, on_lost)
    return WorkerProcess(number, process, link, passing_here, QuestionResponder(questions_here, answer))


def watch_end(process: WorkerProcess | ChildProcess, on_end: Callable[[], None]) -> Callable[[], None]:
    """Call `on_end` once when a process has ended; return a function that cancels this.

    Raises:
        OSError: there is no free descriptor.
    """
    loop = asyncio.get_running_loop()
    descriptor = os.pidfd_open(process.pid)

    def ended() -> None:
        stop()
        process.poll()
        on_end()

    def stop() -> None:
        nonlocal descriptor
        if descriptor >= 0:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            descriptor = -1

    loop.add_reader(descriptor, ended)
    return stop
