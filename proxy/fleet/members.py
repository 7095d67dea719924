"""The members of a fleet: their messages are checked, and their usage is recorded in the fleet's cells of the segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from metering_format.fleet_notes import LEFT_OUT, UNNAMED
from proxy.fleet.bus.bus import Received
from proxy.fleet.clock import Clock
from proxy.fleet.factors import Factors, MemberUsage
from proxy.fleet.keys import FleetKeys
from proxy.fleet.peers import Peer, Usage
from proxy.fleet.queues import FleetQueues
from proxy.fleet.rows import FleetRows, Ints, Places
from proxy.fleet.silence import Silence
from proxy.fleet.throttles import FleetThrottles
from proxy.fleet.wire import ForgedError, Message, OtherFleetError, OtherVersionError, WireError, decoded

FLIGHT_MS: Final = 3_000
"""Time without a message after which the usage in flight of a member no longer counts."""
GONE_MS: Final = 60_000
"""Time without a message after which a member is forgotten, and without usage after which a group's row is released."""
REPLAYED_MS: Final = 10_000
"""Age of a message at the time when the bus accepted it, above which it counts as a copy of an old one."""


class Counts:
    """Messages that were not used, by reason."""

    __slots__ = ("forged", "of_other_fleets", "of_other_versions", "replayed", "unreadable")

    def __init__(self) -> None:
        self.forged = self.of_other_fleets = self.of_other_versions = self.replayed = self.unreadable = 0


class Members:
    """All other members.

    Args:
        rows: the segment.
        keys: of the fleet.

    Attributes:
        peers: by incarnation.
        counts: messages that were not used.
        factors: how much the members use.
        throttles: throttles of departed connections.
        queues: waiting fetches.
        silence: what is assumed of members that are not heard.
        other_versions: versions of messages that cannot be read, and when one came last, in monotonic ms.
    """

    def __init__(self, rows: FleetRows, keys: FleetKeys) -> None:
        self._rows = rows
        self._keys = keys
        self._window_ms = rows.window_ms
        self.peers: dict[int, Peer] = {}
        self.counts = Counts()
        self.other_versions: dict[int, int] = {}
        count = len(rows.generations)
        self._places = Places(count)
        self.factors = Factors(rows, self._places)
        self.throttles = FleetThrottles(rows)
        self.queues = FleetQueues(rows, self._places)
        self.silence = Silence(rows, self._places, self.factors)
        self._place_of: dict[bytes, int] = {}
        self._digest_of: dict[int, bytes] = {}
        self._used_ms: Ints = np.zeros(count, np.int64)
        self._flight: Ints = np.zeros(count, np.int64)
        self._fresh: Ints = np.zeros(count, np.int64)  # usage that `record` puts into the rows
        self._changed: list[Ints] = []  # places whose usage in flight it puts there
        self._rounds: list[Ints] = []  # places with a throttle round
        self._notes: list[tuple[int, Ints, Ints]] = []  # notes that it adds to: which one, places, amounts

    def read(self, received: Received, now_ms: int) -> Message | None:
        """Return a valid message of this fleet; None: it is not one, and it is counted."""
        counts = self.counts
        try:
            message = decoded(received.data, self._keys)
        except OtherFleetError:
            counts.of_other_fleets += 1
        except OtherVersionError as error:
            counts.of_other_versions += 1
            self.other_versions[error.version] = now_ms
        except ForgedError:
            counts.forged += 1
        except WireError:
            counts.unreadable += 1
        else:
            if not message.time_ms or abs(received.time_ms - message.time_ms) <= REPLAYED_MS:
                return message
            counts.replayed += 1
        return None

    def take(self, message: Message, at_ms: int, *, counts: bool, clock: Clock, is_recorded: bool = False) -> bool:
        """Take in a message of another member; return whether the message is new. `record` follows, also after several messages.

        Args:
            message: from `read`.
            at_ms: when the usage happened, in monotonic ms.
            clock: of the bus.
            counts: False: the usage is recorded already, or older than all samples; only the state of the member changes.
            is_recorded: whether it is recorded already.
        """
        peer = self.peers.get(message.incarnation)
        if peer is None:
            peer = self.peers[message.incarnation] = Peer(message.incarnation, len(self._fresh))
        silent_ms = at_ms - peer.heard_ms if peer.sequence else 0
        usage = peer.take(message, lambda digest: self._claim(digest, at_ms), at_ms)
        if usage is None:
            self.counts.replayed += counts  # a message of the history may be known
            return False
        reported = usage.amounts
        if silent_ms > self._window_ms:  # what was used before the present window is over
            usage = usage._replace(amounts=usage.amounts * self._window_ms // silent_ms)
        if len(usage.named) and not is_recorded:
            self._notes.append((UNNAMED, usage.named, usage.bases))
        if counts:
            self._note(self.factors.of(peer.incarnation), usage, reported)
            for number, kind, end_ms in message.throttles.tolist():
                place = peer.place_of(number)
                if place >= 0:
                    self.throttles.take(int(self._places.rows[place]), kind, end_ms, clock, at_ms)
            self.queues.take(peer.incarnation, message.queues, peer.place_of, clock)
        elif not is_recorded:
            self._notes.append((LEFT_OUT, usage.places, reported))
        self._note_flight(usage)
        return True

    def _note(self, member: MemberUsage, usage: Usage, reported: Ints) -> None:
        """Note the usage of a message; of `reported` usage the rest is too old."""
        places, amounts = usage.places, usage.amounts
        if not len(places):
            return
        np.add.at(member.fresh, places, amounts)
        recorded = member.settle(places, amounts)
        np.add.at(self._fresh, places, recorded)
        if recorded is not reported:
            self._notes.append((LEFT_OUT, places, reported - recorded))
        if len(usage.rounds):
            self._rounds.append(usage.rounds)

    def _note_flight(self, usage: Usage) -> None:
        if not len(usage.flight):
            return
        changed = usage.flight != 0
        if changed.any():
            places = usage.places[changed]
            self._flight[places] += usage.flight[changed]
            self._changed.append(places)

    def record(self, at_ms: int) -> None:
        """Put what the last messages had new into the rows, as usage at `at_ms`.

        Notes precede the usage, as `Segment` requires. Usage in flight follows it: what ends in flight is in the totals before.
        """
        for what, places, amounts in self._notes:
            self._rows.note(what, self._places.rows[places], amounts)
        places = np.flatnonzero(self._fresh[: self._places.size])
        if len(places):
            self._rows.record(self._places.rows[places], self._fresh[places], at_ms)
            self._fresh[places] = 0
            self._used_ms[places] = at_ms
        for places in self._rounds:
            self._rows.set_throttle_rounds(self._places.rows[places], at_ms)
        for places in self._changed:
            self._rows.set_under_way(self._places.rows[places], self._flight[places])
        self.queues.record()
        self._rounds, self._changed, self._notes = [], [], []

    def _claim(self, digest: bytes, now_ms: int) -> int:
        """Return the place of a group; a negative number: all rows belong to other groups."""
        place = self._place_of.get(digest)
        if place is not None:
            return place
        row = self._rows.claim(digest, now_ms)
        if row < 0:
            return row
        place = self._places.add(row)
        self._place_of[digest], self._digest_of[place] = place, digest
        self._used_ms[place], self._flight[place] = now_ms, 0
        self.factors.begin(place, now_ms)
        return place

    def update(self, now_ms: int, age_ms: int, *, is_cut_off: bool) -> None:
        """Set what the groups assume about usage that is younger than `age_ms`, and record assumed usage of members that are not heard."""
        self.factors.update(now_ms)
        if is_cut_off:
            self._rows.set_others(0, 0)
        else:
            self._rows.set_others(age_ms, len(list(self.live(now_ms))))
        for peer in self.peers.values():
            self.silence.update(peer.incarnation, peer.heard_ms, now_ms, is_cut_off=is_cut_off)

    def expire(self, now_ms: int, *, is_cut_off: bool = False) -> None:
        """Forget members that have been silent, and release rows of groups that no other member uses.

        Args:
            is_cut_off: whether this member hears nobody; then silence says nothing about the others, and none is forgotten.
        """
        self.throttles.expire(now_ms)
        for peer in list(self.peers.values()):
            if now_ms - peer.heard_ms > FLIGHT_MS:
                self._note_flight(peer.lose_flight())
                self.queues.lose(peer.incarnation)
            if now_ms - peer.heard_ms > GONE_MS and not is_cut_off:
                del self.peers[peer.incarnation]
                self.factors.forget(peer.incarnation)
                self.silence.forget(peer.incarnation)
        self.record(now_ms)
        if not is_cut_off:
            self._release_unused(now_ms)

    def _release_unused(self, now_ms: int) -> None:
        """Release the rows of groups that no other member has used for a minute."""
        places = self._places.used()
        left = places[(now_ms - self._used_ms[places] > GONE_MS) & (self._flight[places] == 0)]
        if not len(left):
            return
        for peer in self.peers.values():
            peer.forget(left)
        self.factors.release(left)
        self.silence.release(left)
        self.queues.release(left)
        for place, row in zip(left.tolist(), self._places.rows[left].tolist(), strict=True):
            del self._place_of[self._digest_of.pop(place)]
            self._rows.release(row)
        self._places.remove(left)

    def live(self, now_ms: int) -> Iterator[Peer]:
        """Yield the members that were heard within `FLIGHT_MS`."""
        return (peer for peer in self.peers.values() if now_ms - peer.heard_ms <= FLIGHT_MS)
