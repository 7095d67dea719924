"""The running supervisor's side of an upgrade: starts the new version, hands over, and continues if the new version fails."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from proxy.base.service_manager import notify
from proxy.telemetry import log
from proxy.workers.handover.channel import Channel
from proxy.workers.handover.handover_listener import Part
from proxy.workers.handover.messages import Offer, Refused, UpgradeEnded
from proxy.workers.handover.place import Place
from proxy.workers.handover.predecessor import TAKEOVER_PID_VARIABLE
from proxy.workers.processes.child import watch_end

END_S: Final = 5.0
"""Time limit for a failed new version to end by itself; then it is killed."""
EXIT_WAIT_S: Final = 0.5
UPGRADE_S: Final = 90.0
"""Time limit for an upgrade."""


class Successor:
    """The supervisor's side of an upgrade; a `Replaceable`.

    Args:
        segment: descriptor of the segment of shared usage.
        numbers: of the workers.
        suspend: stops accepting, releases what only one process can hold, and returns the ports and the state to hand over.
        resume: reverses `suspend`.
        on_replaced: called when the new version accepts connections.
        report: tells the new version of connections that end here, until this process ends.

    Attributes:
        is_replaced: whether the new version accepts connections.
        may_go_on: not set while this supervisor is suspended.
    """

    def __init__(
        self,
        place: Place,
        segment: int,
        numbers: Sequence[int],
        *,
        suspend: Callable[[], Awaitable[Sequence[Part]]],
        resume: Callable[[], Awaitable[None]],
        on_replaced: Callable[[], None],
        report: Callable[[Channel], Awaitable[None]],
    ) -> None:
        self._place = place
        self._segment = segment
        self._numbers = list(numbers)
        self._suspend = suspend
        self._resume = resume
        self._on_replaced = on_replaced
        self._report = report
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: asyncio.Future[UpgradeEnded] | None = None
        self._has_ended = asyncio.Event()  # set when the new version, a child of this process, has ended
        self._is_suspended = False
        self.is_replaced = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def upgrade(self) -> UpgradeEnded:
        """Start the new version with the command line of this process; return the result when it has taken over or failed."""
        ended = await self._upgraded()
        if ended.pid is None:
            log.error("upgrade_failed", problem=ended.problem)
        else:
            log.info("upgraded", pid=ended.pid)
        return ended

    async def _upgraded(self) -> UpgradeEnded:
        if self.is_replaced or self._ended is not None:
            return UpgradeEnded(None, "an upgrade is under way already; wait for its end")
        if os.getpid() == 1:
            return UpgradeEnded(None, "this is process 1, with which all others of its container end: replace the container")
        log.info("upgrade_begins")
        ended: asyncio.Future[UpgradeEnded] = asyncio.get_running_loop().create_future()
        self._ended = ended
        try:
            self._process = process = start_again({TAKEOVER_PID_VARIABLE: str(os.getpid())})
            has_ended = self._has_ended = asyncio.Event()
            stop_watch = watch_end(process, has_ended.set)
        except OSError as error:
            if self._process is not None:
                self._process.kill()
            self._ended = self._process = None
            return UpgradeEnded(None, f"the new version cannot be started: {error.strerror or error}")
        try:
            await _first(ended, has_ended)
            if not ended.done() and has_ended.is_set():  # its last message at the socket may not have been read yet
                await asyncio.wait([ended], timeout=EXIT_WAIT_S)
            if not ended.done():
                code = process.poll()
                problem = f"no answer within {UPGRADE_S:g} s" if code is None else f"exit code {code}; what it printed says why"
                ended.set_result(UpgradeEnded(None, f"the new version does not take over: {problem}"))
            return ended.result()
        finally:
            self._ended = self._process = None
            if not self.is_replaced:
                await _until_ended(process, has_ended)
            stop_watch()

    def give_up(self) -> None:
        """Kill the new version if it has not taken over; called when this supervisor ends."""
        if self._process is not None and not self.is_replaced:
            self._process.kill()

    # --- called by `HandoverListener`

    def offer(self, pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        """Return an offer to the new version that `upgrade` started; refuse every other process."""
        lock = self._place.lock
        if self._process is None or self._process.pid != pid or self.is_replaced or lock is None:
            return Refused("it runs; sluice upgrade puts a new one in its place")
        return Offer(self._numbers), [self._segment, lock]

    async def hand_over(self) -> Sequence[Part]:
        """Stop accepting; return the ports and the state to hand over."""
        self._is_suspended = True
        self.may_go_on.clear()
        return await self._suspend()

    def taken(self, pid: int) -> None:
        """Report the upgrade's success to `upgrade` and to the service manager, and call `on_replaced`."""
        self.is_replaced = True
        self.may_go_on.set()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(UpgradeEnded(pid, ""))
        notify(f"MAINPID={pid}")
        self._on_replaced()

    async def report(self, channel: Channel) -> None:
        """Tell the new version of connections that end here.

        Raises:
            ChannelClosed: the new version has ended.
        """
        await self._report(channel)

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        """Continue as the supervisor; first kill a new version that may still hold ports."""
        if self._process is not None and not is_ending:
            self._process.kill()
            await self._has_ended.wait()
        if self._is_suspended:
            self._is_suspended = False
            await self._resume()
            self.may_go_on.set()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(UpgradeEnded(None, problem))


def start_again(environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a process with the command line of this one and additional environment variables.

    Raises:
        OSError: the process cannot be started.
    """
    command = [sys.executable, *sys.orig_argv[1:]]
    return subprocess.Popen(command, env={**os.environ, **environment}, stdin=subprocess.DEVNULL)  # noqa: S603 - ourselves


async def _first(ended: asyncio.Future[UpgradeEnded], has_ended: asyncio.Event) -> None:
    waiting = asyncio.ensure_future(has_ended.wait())
    ended.add_done_callback(lambda _ended: waiting.cancel())
    await asyncio.wait([waiting], timeout=UPGRADE_S)
    waiting.cancel()


async def _until_ended(process: subprocess.Popen[bytes], has_ended: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(END_S):
            await has_ended.wait()
    except TimeoutError:
        process.kill()
        await has_ended.wait()
