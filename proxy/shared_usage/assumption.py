"""What a group assumes about usage of other members of the fleet that it cannot know yet.

Usage of other members becomes known after the lag D of the bus. While this member used u in the last D, the others are assumed to have
used c x u, where the factor c is what they used in the last seconds for each unit of this member. c is at most the number of other
members that use the group, and less when they have stopped (`LatelyKnown`). In the first 2 D after a silence of the group here (for fetches
the time of `known_within_ms`), nothing is known about the others: each of them is assumed to use as much as this member, and such an
assumption delays for at most D.

Of fetches the members also know what they ask for now, which takes the place of c (`FleetGroup`). As soon as a window has room, a whole
window of them can pass within D. So what matters is the lag at that moment, and D is an average. While fetches wait, the others are
therefore also assumed to have forwarded c times what this member has in the last `FORWARDED_MS`, less what has become known of it: this
does not depend on the lag.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple

PARTS: Final = 8
"""Own usage is noted once in each of these parts of D, so up to one part more than D counts."""
LAG_MS_MAX: Final = 2_000
"""A longer lag is a failure of the bus, not a delay to assume."""
EARLIER_MS_MAX: Final = 1_000
"""The most by which usage of other members is recorded before it becomes known. D is an average, and files of members are compared with a
tolerance of 2 s, within which a unit has to be recorded where it was used."""
NEW_LAGS: Final = 2
"""Number of lags after which what happened elsewhere is known: D is an average, and no lag is twice as long."""

SILENCE_MS: Final = 5_000
"""Time without usage here after which what the others used for each unit says nothing about the next wave; for fetches it is a window."""

LATELY_MS: Final = 1_000
"""Length of the time that tells whether the others still use a group as in the last seconds. Many clients can move within a second."""

FORWARDED_MS: Final = 500
"""Time in which fetches that were forwarded are assumed of the others as long as they are not known; at least `NEW_LAGS` lags."""


class Elsewhere(NamedTuple):
    """What is known about the other members.

    Attributes:
        factor: what they used for each unit of this member.
        lag_ms: age of their usage when it becomes known here; 0: not measured yet.
        others: number of members that are heard.
    """

    factor: float
    lag_ms: int
    others: int


class FleetUsage(NamedTuple):
    """What a group knows and assumes about the other members.

    Attributes:
        elsewhere_total: units that they used, as far as this process has recorded them.
        assumed: units that the last decision assumed.
        factor: what they used in the last seconds for each unit of this member.
        lag_ms: age of their usage when it becomes known here; 0: not measured, or this member is cut off.
        others: number of members that are heard.
    """

    elsewhere_total: float
    assumed: float
    factor: float
    lag_ms: int
    others: int


NOBODY: Final = Elsewhere(0.0, 0, 0)


def is_shared_scope(scope_key: str) -> bool:
    """Whether a fleet shares the usage of a scope: its name is the same at all members.

    It is that of the cluster, or the node id of a broker. A broker whose node id is not known yet has its address as name, which may differ
    between members.
    """
    return ":" not in scope_key


class OwnRecent:
    """The usage of this member in a group, by all of its workers, in the last D."""

    __slots__ = ("_first_ms", "_notes", "_total", "_used_ms")

    def __init__(self) -> None:
        self._notes: deque[tuple[int, float]] = deque()
        self._total = 0.0
        self._used_ms = self._first_ms = -(2**62)

    def used(self, before: float, amount: float, lag_ms: int, silence_ms: int, now_ms: int) -> float:
        """Return what this member used in the last `lag_ms`, with `amount`, which is about to be recorded.

        Args:
            before: all usage of this member in the group, without `amount`.
            silence_ms: time without usage after which the use counts as new.
        """
        notes = self._notes
        if amount or before != self._total:
            self.goes_on(silence_ms, now_ms)
        self._total = before + amount
        if notes and now_ms - notes[-1][0] > lag_ms:
            notes.clear()
        if not notes or now_ms - notes[-1][0] >= max(1, lag_ms // PARTS):
            notes.append((now_ms, before))
        begin_ms = now_ms - lag_ms
        while len(notes) > 1 and notes[1][0] <= begin_ms:
            notes.popleft()
        return max(0.0, self._total - notes[0][1])

    def goes_on(self, silence_ms: int, now_ms: int) -> None:
        """Note that there is use, or that a fetch waits. After a silence it begins."""
        if now_ms - self._used_ms > silence_ms:
            self._first_ms = now_ms
        self._used_ms = now_ms

    def is_new(self, within_ms: int, now_ms: int) -> bool:
        """Whether the present use began less than `within_ms` ago."""
        return now_ms - self._first_ms < within_ms


class LatelyKnown:
    """What this member used in the last second, as far as what the others used meanwhile is known."""

    __slots__ = ("_notes",)

    def __init__(self) -> None:
        self._notes: list[tuple[int, float, float]] = []  # time, own usage and known usage of the others until then

    def factor(self, factor: float, own: float, elsewhere: float, weight: float, lag_ms: int, now_ms: int) -> float:
        """Return `factor`, or less if the others have used less lately: (V + factor x weight) / (U + weight).

        U is what this member used in a second that ended 2 D ago, and V what has become known of the others since that second plus D
        began. So V contains at least what they used in that second.

        Args:
            factor: what the others used in the last seconds for each unit of this member.
            own: all usage of this member in the group.
            elsewhere: all known usage of the others.
            weight: units of this member for which `factor` stays as important as what is known lately.
            lag_ms: D.
            now_ms: monotonic ms.
        """
        notes = self._notes
        if notes and now_ms - notes[-1][0] > LATELY_MS:
            notes.clear()
        if not notes or now_ms - notes[-1][0] >= LATELY_MS // PARTS:
            notes.append((now_ms, own, elsewhere))
        end_ms = now_ms - NEW_LAGS * lag_ms
        del notes[: _at(notes, end_ms - LATELY_MS)]
        begin_ms, used, _ = notes[0]
        used = notes[_at(notes, end_ms)][1] - used
        known = elsewhere - notes[_at(notes, begin_ms + lag_ms)][2]
        return min(factor, (max(0.0, known) + factor * weight) / (max(0.0, used) + weight)) if weight > 0.0 else factor


class Fetches(NamedTuple):
    """The fetches of a group at a time, at this member and, as far as known, elsewhere.

    Attributes:
        time_ms: monotonic ms.
        here, elsewhere: all units so far, with those in flight.
        asks_here, asks_elsewhere: units that are asked for, waiting or in flight.
    """

    time_ms: int
    here: float
    elsewhere: float
    asks_here: float
    asks_elsewhere: float


class Forwarded:
    """What the fetches of a group have used in the time of `known_within_ms`."""

    __slots__ = ("_notes", "_waited_ms")

    def __init__(self) -> None:
        self._notes: list[Fetches] = []  # a list, since an empty deque takes 700 bytes
        self._waited_ms = -(2**62)

    def note(self, fetches: Fetches, lag_ms: int, *, waits: bool) -> float | None:
        """Note fetches; return what is asked for elsewhere for each unit here; None: nothing.

        While the window has no room, the most that was asked for in the last time counts: a consumer asks for nothing between a response
        and its next fetch.

        Args:
            lag_ms: D.
            waits: whether a fetch waits at any member.
        """
        notes, now_ms = self._notes, fetches.time_ms
        if waits:
            self._waited_ms = now_ms
        if notes and now_ms - notes[-1].time_ms > known_within_ms(lag_ms):
            notes.clear()
        if not notes or now_ms - notes[-1].time_ms >= max(1, lag_ms // PARTS):
            notes.append(fetches)
        del notes[: _at(notes, now_ms - known_within_ms(lag_ms))]
        here, elsewhere = fetches.asks_here, fetches.asks_elsewhere
        if self._is_full(lag_ms, now_ms):
            here = max(here, max(note.asks_here for note in notes))
            elsewhere = max(elsewhere, max(note.asks_elsewhere for note in notes))
        return elsewhere / here if elsewhere else None

    def unknown(self, fetches: Fetches, factor: float, lag_ms: int, *, is_new: bool = False) -> float:
        """Return the units of fetches elsewhere that are not known, if those elsewhere are forwarded as those here.

        Args:
            fetches: those that were noted last.
            factor: from `note`.
            is_new: whether the use has just begun.
        """
        notes, now_ms = self._notes, fetches.time_ms
        if not is_new and not self._is_full(lag_ms, now_ms):
            return 0.0
        begin = notes[_at(notes, now_ms - known_within_ms(lag_ms) + lag_ms)]  # what became known before was used before this time
        forwarded, known = fetches.here - notes[0].here, fetches.elsewhere - begin.elsewhere
        return max(0.0, factor * max(0.0, forwarded) - max(0.0, known))

    def _is_full(self, lag_ms: int, now_ms: int) -> bool:
        """Whether a fetch waited in the last time. Otherwise the window has room, and there are no waves."""
        return now_ms - self._waited_ms <= known_within_ms(lag_ms)


def known_within_ms(lag_ms: int) -> int:
    """Return the time in ms after which fetches elsewhere are known for certain, also if messages are late while fetches pass."""
    return max(FORWARDED_MS, NEW_LAGS * lag_ms)


class Assumption:
    """The assumption of one group in one worker.

    Attributes:
        recent: own usage in the last D.
        lately: what became known lately, if this is no group of fetches.
        forwarded: what fetches used, if this is a group of fetches.
        factor, units: the factor c, and the assumed units, of the last decision.
        reserved: units that a prediction reserves for others already, so that it does not assume them as well.
        metered: assumed units, as in totals, and their time in ms, whose end is not metered yet; (0, 0): there are none.
    """

    __slots__ = ("factor", "forwarded", "lately", "metered", "recent", "reserved", "units")

    def __init__(self) -> None:
        self.recent = OwnRecent()
        self.lately = LatelyKnown()
        self.forwarded = Forwarded()
        self.factor = self.units = self.reserved = 0.0
        self.metered = (0, 0)

    def continue_from(self, other: Assumption) -> None:
        """Take on the state of another group, all of whose assumptions are metered."""
        self.recent, self.lately, self.forwarded = other.recent, other.lately, other.forwarded
        self.factor, self.units = other.factor, other.units


def _at(notes: Sequence[tuple[float, ...]], time_ms: int) -> int:
    """Return the index of the last note until then, or of the first one; a note begins with its time."""
    return max(0, bisect_right(notes, time_ms, key=itemgetter(0)) - 1)
