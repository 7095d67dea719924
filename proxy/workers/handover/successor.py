"""Gives the place of a supervisor to a new version: starts it, hands over, and goes on when it does not serve."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from proxy.base.service_manager import notify
from proxy.telemetry import log
from proxy.workers.child import watch_end
from proxy.workers.handover.meeting import Part
from proxy.workers.handover.messages import Offer, Refused, UpgradeEnded
from proxy.workers.handover.place import Place
from proxy.workers.handover.predecessor import TAKES_OVER

END_S: Final = 5.0
"""How long a new version that failed may take to end by itself."""
LAST_WORDS_S: Final = 0.5
UPGRADE_S: Final = 90.0
"""How long an upgrade may take in all."""


class Successor:
    """A supervisor's side of an upgrade; a `Replaceable`.

    Args:
        segment: descriptor of the memory that workers share usage by.
        numbers: of the workers.
        suspend: lets clients wait, ends what one process alone may do, and returns what changes hands.
        resume: undoes that.
        on_replaced: called when the new version accepts.

    Attributes:
        is_replaced: the new version accepts.
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
    ) -> None:
        self._place = place
        self._segment = segment
        self._numbers = list(numbers)
        self._suspend = suspend
        self._resume = resume
        self._on_replaced = on_replaced
        self._process: subprocess.Popen[bytes] | None = None
        self._ended: asyncio.Future[UpgradeEnded] | None = None
        self._has_ended = asyncio.Event()  # the new version, which is a child of this process
        self._is_suspended = False
        self.is_replaced = False
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()

    async def upgrade(self) -> UpgradeEnded:
        """Start the new version by the command line of this one; return when it has taken over, or has not."""
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
            self._process = process = start_again({TAKES_OVER: str(os.getpid())})
            has_ended = self._has_ended = asyncio.Event()
            stop_watch = watch_end(process, has_ended.set)
        except OSError as error:
            if self._process is not None:
                self._process.kill()
            self._ended = self._process = None
            return UpgradeEnded(None, f"the new version cannot be started: {error.strerror or error}")
        try:
            await _first(ended, has_ended)
            if not ended.done() and has_ended.is_set():  # what it said at the socket, if anything, is about to be read
                await asyncio.wait([ended], timeout=LAST_WORDS_S)
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
        """End the new version that was started, if it has not taken over: this Sluice is to end."""
        if self._process is not None and not self.is_replaced:
            self._process.kill()

    # --- at the meeting

    def offer(self, pid: int) -> tuple[Offer, Sequence[int]] | Refused:
        """Offer everything to the process that was started here, and to no other."""
        lock = self._place.lock
        if self._process is None or self._process.pid != pid or self.is_replaced or lock is None:
            return Refused("it runs; sluice upgrade puts a new one in its place")
        return Offer(self._numbers), [self._segment, lock]

    async def hand_over(self) -> Sequence[Part]:
        """Accept no more; return what changes hands."""
        self._is_suspended = True
        self.may_go_on.clear()
        return await self._suspend()

    def taken(self, pid: int) -> None:
        """The new version accepts."""
        self.is_replaced = True
        self.may_go_on.set()
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(UpgradeEnded(pid, ""))
        notify(f"MAINPID={pid}")
        self._on_replaced()

    async def kept(self, problem: str, *, is_ending: bool) -> None:
        """The new version does not serve: go on, once it holds nothing any more."""
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
    """Start the command line of this process once more.

    Raises:
        OSError: it cannot be started.
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
