"""The hub of a member: publishes own usage to the bus, and records the usage of the other members."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec
import numpy as np

from proxy.fleet.bus.bus import Bus, BusError, Received
from proxy.fleet.clock import Clock
from proxy.fleet.connections.entries import NO_CONNECTIONS, Connections
from proxy.fleet.connections.pending import PendingConnections
from proxy.fleet.keys import FleetKeys
from proxy.fleet.members import Members
from proxy.fleet.own_usage import OwnUsage, in_messages
from proxy.fleet.rows import FleetRows
from proxy.fleet.status import FleetStatus, MemberStatus
from proxy.fleet.wire import NO_NAMES, NO_QUEUES, NO_THROTTLES, NO_TOTALS, TOTAL, About, Entries, Message, encoded
from proxy.shared_usage.shared_groups import SHARE_MS
from proxy.telemetry import log

RETRY_S: Final = 1.0
"""Minimum time from the beginning of one connection to that of the next one."""
HEARTBEAT_MS: Final = 1_000
"""A member without changes sends a message after this time."""
EXPIRE_MS: Final = 1_000
UPDATE_S: Final = 0.1
"""Interval in which factors, and what is assumed of members that are not heard, are brought up to date."""
PAUSE_MS: Final = 3
"""Time between two reads of the bus for each other member, so that messages of many members are recorded together."""
PAUSE_MS_MAX: Final = 35
WATCH_S: Final = 0.5
HISTORY_MS: Final = 60_000
"""Part of the log that is read at the start: totals of active groups are in it."""
CUT_OFF_MS: Final = 1_000
"""Time without an own message coming back after which this member counts as cut off."""
SILENT: Final = "own messages do not come back"
LAST_S: Final = 1.0
"""Time limit for the last message of a hub."""
UNREAD_MAX: Final = 1_000
"""Number of own messages whose time of sending is kept."""


class Settings(msgspec.Struct, frozen=True):
    """Settings of a hub.

    Attributes:
        about: the description of this member.
        publish_ms: interval of messages.
        bytes_per_second_max: maximum of totals that are published.
        paced_burst_ms: the burst of paced groups; None: the configuration paces none.
    """

    about: About
    publish_ms: int
    bytes_per_second_max: int
    paced_burst_ms: int | None = None


class Hub:
    """One member's part in the fleet.

    Args:
        bus, rows, keys, settings: of the fleet.
        now_ms: monotonic clock.

    Attributes:
        quotas: number of this member's quotas.
        limits: number of this member's limits on connections; 0: it does not share connections.
        connections: entries about connections to publish.
        on_connections: called with each message of another member that has entries about connections, with the monotonic time in ms at
            which these happened, and with whether the message is contained in the rows for the first time.
        joined: set when the history of the bus is contained in the rows, for the first time.
    """

    def __init__(self, bus: Bus, rows: FleetRows, keys: FleetKeys, settings: Settings, now_ms: Callable[[], int]) -> None:
        self._bus = bus
        self._rows = rows
        self._keys = keys
        self._settings = settings
        self._now_ms = now_ms
        self._incarnation = rows.segment.incarnation
        self._own = OwnUsage(rows)
        self.members = Members(rows, keys)
        self.quotas = self.limits = 0
        self.connections = PendingConnections()
        self.on_connections: Callable[[Message, int, bool], None] = _ignore
        self.joined = asyncio.Event()
        self._clock: Clock | None = None
        self._sent_ms: OrderedDict[int, int] = OrderedDict()
        self._described_ms = self._published_ms = -HEARTBEAT_MS
        self._echo_ms: int | None = None
        self._lag_ms: float | None = None
        self._has_short_burst = False  # reported already
        self._problem: str | None = "is not read yet"
        self._cut_off_ms = 0
        self._checked_ms = now_ms()

    async def run_forever(self) -> None:
        """Take part in the fleet until cancelled; connect again after each problem."""
        await _first_of(self._connect_forever(), self._assume_forever())

    async def _connect_forever(self) -> None:
        while True:
            begun_ms = self._now_ms()
            try:
                await self._bus.start()
                await self._take_part()
            except BusError as error:
                self._report(str(error))
            finally:
                await self._bus.stop()
            await asyncio.sleep(max(0.0, RETRY_S - (self._now_ms() - begun_ms) / 1_000))

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            log.warning("fleet_cut_off", limit_key="fleet_cut_off", bus=self._bus.name, problem=problem)
        elif problem is None and self._problem is not None:
            log.info("fleet_joined", bus=self._bus.name, members=1 + len(list(self.members.live(self._now_ms()))))
        self._problem = problem

    async def _take_part(self) -> None:
        """Read the history, then publish and record.

        Raises:
            BusError: the bus cannot be used now.
        """
        greeting = await self._greet()
        await self._read_until(greeting)
        self._own.send_again(self._now_ms())
        self._report(None)
        self.joined.set()
        await _first_of(self._publish_forever(), self._record_forever(), self._watch_forever())

    # --- start

    async def _greet(self) -> int:
        """Send a message without usage; return its position. It shows the time of the bus, and where the history ends."""
        now_ms = self._now_ms()
        sent = await self._bus.send(encoded(self._message(NO_NAMES, NO_TOTALS, NO_THROTTLES, 0, now_ms), self._keys))
        self._clock = Clock(sent.time_ms, now_ms)
        return sent.position

    async def _read_until(self, position: int) -> None:
        """Read the history up to a position."""
        assert self._clock is not None
        last_ms, last_position = self._rows.read
        if position <= last_position:  # the log was made anew: all of it is new
            last_position = -1
        begin_ms = min(last_ms or self._clock.bus_ms, self._clock.bus_ms) - HISTORY_MS
        first = await self._bus.read_from(max(0, begin_ms))
        last = first - 1
        while last < position:
            for received in await self._bus.receive():
                if received.position == first and self._was_made_anew(received.time_ms):
                    last_position = -1
                at_ms = min(self._now_ms(), self._clock.local(received.time_ms))
                is_new = received.position > last_position
                self._take(received, at_ms, is_new=is_new)
                self._record(received if is_new else None, at_ms)
                last = received.position

    def _was_made_anew(self, first_ms: int) -> bool:
        """Whether the log is another one than before, although it is as long: its first message in the history is younger than all.

        The clock of the bus may also have stepped back. Then members refuse the messages that they have read, by their sequence. A new hub
        knows no sequence, so it does not look at times.
        """
        return self.joined.is_set() and first_ms > self._rows.read[0]

    # --- own usage

    async def _publish_forever(self) -> None:
        while True:
            await self._publish()
            await asyncio.sleep(self._settings.publish_ms / 1_000)

    async def _publish(self, *, is_last: bool = False) -> None:
        """Send what is due, or a message without usage if none was sent for a second."""
        now_ms = self._now_ms()
        bytes_max = self._settings.bytes_per_second_max * self._settings.publish_ms // 1_000
        connections = self.connections.take(bytes_max // 2)
        entries_max = (bytes_max - connections.nbytes) // TOTAL.itemsize
        assert self._clock is not None
        throttles = self.members.throttles.changes(self._clock, now_ms)
        members = 1 + len(list(self.members.live(now_ms)))
        reading = self._rows.reading(self._rows.shared_rows())
        queues = self.members.queues.changes(reading, self._clock, now_ms)
        also_named = np.concatenate((throttles["id"], queues["id"])).astype(np.int64)
        names, totals = self._own.changes(reading, max(1, entries_max), now_ms, also_named, members=members, is_last=is_last)
        is_empty = not any(map(len, (totals, throttles, queues, connections)))
        if is_empty and now_ms - self._published_ms < HEARTBEAT_MS:
            return
        *parts, last = in_messages(names, totals)
        for some_names, some_totals in parts:
            await self._send(some_names, some_totals, NO_THROTTLES)
        await self._send(*last, throttles, connections, queues)
        self.connections.published()
        self._published_ms = now_ms

    async def _send(
        self,
        names: Entries,
        totals: Entries,
        throttles: Entries,
        connections: Connections = NO_CONNECTIONS,
        queues: Entries = NO_QUEUES,
    ) -> None:
        assert self._clock is not None
        now_ms = self._now_ms()
        message = self._message(names, totals, throttles, self._clock.bus(now_ms), now_ms)
        message = message._replace(connections=connections, queues=queues)
        self._sent_ms[message.sequence] = now_ms
        if len(self._sent_ms) > UNREAD_MAX:
            self._sent_ms.popitem(last=False)
        sent = await self._bus.send(encoded(message, self._keys))
        self._clock = Clock(sent.time_ms, now_ms)

    def _age_ms(self) -> int:
        """Return the average age of usage of another member when it becomes known here: it waits at a worker, at the hub, and on the bus.

        Usage waits for half of an interval on average.
        """
        return 0 if self._lag_ms is None else round(self._lag_ms + (self._settings.publish_ms + SHARE_MS) / 2)

    async def publish_last(self) -> None:
        """Publish what has not been published yet, because this process ends."""
        if self._problem is None:
            with contextlib.suppress(BusError, TimeoutError):
                async with asyncio.timeout(LAST_S):
                    await self._publish(is_last=True)

    def _message(self, names: Entries, totals: Entries, throttles: Entries, time_ms: int, now_ms: int) -> Message:
        about = None
        if now_ms - self._described_ms >= HEARTBEAT_MS:
            about, self._described_ms = msgspec.structs.replace(self._settings.about, connections=self.limits), now_ms
        return Message(self._incarnation, self._rows.next_sequence(), self.quotas, time_ms, about, names, totals, throttles)

    # --- usage of others

    async def _record_forever(self) -> None:
        while True:
            some = await self._bus.receive()
            now_ms = self._now_ms()
            for received in some:
                self._take(received, now_ms, is_new=True)
            self._record(some[-1], now_ms)
            await asyncio.sleep(min(PAUSE_MS_MAX, PAUSE_MS * len(self.members.peers)) / 1_000)

    def _record(self, last: Received | None, at_ms: int) -> None:
        """Put the usage of the last messages into the rows; `last` is the newest one, None: they were there already."""
        self.members.record(at_ms)
        if last is not None:
            self._rows.read = last.time_ms, last.position

    def _take(self, received: Received, at_ms: int, *, is_new: bool) -> None:
        """Take in a message as of this time; one that is not new, or older than all samples, only changes the state of its sender."""
        now_ms = self._now_ms()
        message = self.members.read(received, now_ms)
        if message is None:
            return
        if message.incarnation == self._incarnation:
            self._returned(message.sequence, now_ms)
            return
        is_young = now_ms - at_ms < self._rows.window_ms
        assert self._clock is not None
        counts = is_new and is_young
        is_usable = self.members.take(message, at_ms, counts=counts, clock=self._clock, is_recorded=not is_new)
        if is_usable and len(message.connections):
            self.on_connections(message, at_ms, is_new)

    def _returned(self, sequence: int, now_ms: int) -> None:
        """An own message has come back: its age is the lag of the bus."""
        sent_ms = self._sent_ms.pop(sequence, None)
        if sent_ms is not None:
            lag_ms = now_ms - sent_ms
            self._lag_ms = lag_ms if self._lag_ms is None else self._lag_ms + (lag_ms - self._lag_ms) / 8
            self._echo_ms = now_ms
            self._compare_with_burst()

    def _compare_with_burst(self) -> None:
        """Report once that paced groups have a burst in which usage of other members does not become known."""
        burst_ms, known_after_ms = self._settings.paced_burst_ms, self._age_ms()
        if burst_ms is not None and known_after_ms > burst_ms and not self._has_short_burst:
            self._has_short_burst = True
            remedy = "set quotas.paced_burst_ms to more than known_after_ms at all members"
            log.warning("fleet_burst_short", burst_ms=burst_ms, known_after_ms=known_after_ms, remedy=remedy)

    async def _watch_forever(self) -> None:
        """Report a cut without an error of the bus."""
        while True:
            await asyncio.sleep(WATCH_S)
            is_silent = self._is_silent()
            if is_silent and self._problem is None:
                self._report(SILENT)
            elif not is_silent and self._problem == SILENT:
                self._report(None)

    async def _assume_forever(self) -> None:
        """Keep up to date what is assumed of the others, also while the bus cannot be used."""
        expired_ms = self._now_ms()
        while True:
            now_ms, is_cut_off = self._now_ms(), self._is_cut_off()
            self.members.update(now_ms, self._age_ms(), is_cut_off=is_cut_off)
            if now_ms - expired_ms >= EXPIRE_MS:
                expired_ms = now_ms
                self.members.expire(now_ms, is_cut_off=is_cut_off)
            await asyncio.sleep(UPDATE_S)

    def _is_cut_off(self) -> bool:
        """Whether this member hears nobody."""
        return self._problem is not None or self._is_silent()

    def _is_silent(self) -> bool:
        """Whether no own message has come back for longer than one takes."""
        return self._echo_ms is None or self._now_ms() - self._echo_ms > HEARTBEAT_MS + CUT_OFF_MS

    # --- status

    def silent_ms(self) -> dict[int, int]:
        """Return the time since the last message of each other member, by incarnation."""
        now_ms = self._now_ms()
        return {peer.incarnation: now_ms - peer.heard_ms for peer in self.members.peers.values()}

    def status(self) -> FleetStatus:
        """Return the state of the fleet as this member sees it; the time cut off counts from call to call."""
        now_ms = self._now_ms()
        is_cut_off = self._is_cut_off()
        if is_cut_off and self.joined.is_set():
            self._cut_off_ms += now_ms - self._checked_ms
        self._checked_ms = now_ms
        counts = self.members.counts
        peers = [
            MemberStatus(
                peer.about.member if peer.about is not None else f"{peer.incarnation:016x}",
                peer.about.version if peer.about is not None else "",
                peer.about.enforcement if peer.about is not None else "",
                now_ms - peer.heard_ms,
                peer.quotas == self.quotas,
                peer.about is not None and peer.about.connections != 0,
                peer.about is None or peer.about.connections == self.limits,
                f"{peer.incarnation:016x}",
            )
            for peer in self.members.peers.values()
        ]
        about = self._settings.about
        own = MemberStatus(
            about.member,
            about.version,
            about.enforcement,
            0,
            has_equal_quotas=True,
            shares_connections=self.limits != 0,
            incarnation=self._rows.segment.identity,
        )
        return FleetStatus(
            bus=self._bus.name,
            problem=self._problem,
            is_cut_off=is_cut_off,
            cut_off_ms=self._cut_off_ms,
            lag_ms=self._lag_ms,
            clock_ms=None if self._clock is None else self._clock.bus(now_ms) - now_ms,
            echo_age_ms=None if self._echo_ms is None else now_ms - self._echo_ms,
            members=[own, *sorted(peers, key=lambda one: one.member)],
            unreadable_versions=sorted(version for version, at_ms in self.members.other_versions.items() if now_ms - at_ms < HISTORY_MS),
            forged=counts.forged,
            replayed=counts.replayed,
            unreadable=counts.unreadable + counts.of_other_versions,
            of_other_fleets=counts.of_other_fleets,
        )


def _ignore(_message: Message, _at_ms: int, _is_new: bool) -> None:
    """Do nothing: this member does not share connections."""


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run these until one of them ends or fails; then end the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
