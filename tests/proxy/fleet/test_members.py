"""Members of a fleet share one budget: what each records becomes known to all others once, however messages travel."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metering_format.fleet_notes import ASSUMED, LEFT_OUT, UNNAMED
from proxy.fleet.bus.bus import Received
from proxy.fleet.keys import fleet_keys
from proxy.fleet.members import GONE_MS
from proxy.fleet.own_usage import REPEAT_MS, SILENT_MS
from proxy.fleet.peers import Peer, Usage
from proxy.fleet.wire import NAME, NO_THROTTLES, TOTAL, Entries, Message, encoded
from proxy.shared_usage.segment import FLEET_NOTES
from quota.entity import ClientQuotaType
from tests.support.fleet.fleet_members import KEYS, SECRET, FleetMember, exchange
from tests.support.memory.shared_workers import replay

BOUND = 1_000.0
START_MS = 1_000_000
EVENTS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 5), st.sampled_from(["record"] * 3 + ["publish", "deliver"])), max_size=80)


def members(count: int = 2, workers: int = 2, **settings: object) -> list[FleetMember]:
    """Return members with a group of the same name."""
    return [FleetMember(f"edge-{number}", workers, BOUND, START_MS, **settings) for number in range(count)]


def test_usage_of_one_member_is_recorded_by_all_workers_of_the_others() -> None:
    """What a worker records is known to every worker of every member after one message, and counts against the bound there."""
    one, other, third = members(3)
    one.workers[0].record(8_000.0, START_MS)
    exchange([one, other, third], START_MS + 20)
    assert one.known(START_MS + 40) == other.known(START_MS + 40) == third.known(START_MS + 40) == [8_000.0, 8_000.0]
    assert other.workers[1].record(4_000.0, START_MS + 50) > 0


@pytest.mark.parametrize("quota_type", [ClientQuotaType.FETCH, ClientQuotaType.REQUEST])
def test_usage_in_flight_of_other_members_counts(quota_type: ClientQuotaType) -> None:
    """Usage in flight, in KiB, is that of all members, and no longer that of a member that is silent for more than 3 s."""
    one, other = members(quota_type=quota_type)
    one.workers[0].group.pending += 4.0 if quota_type is ClientQuotaType.REQUEST else 4_096.0
    exchange([one, other], START_MS)
    (elsewhere,) = {worker.group.pending_at(START_MS + 20) for worker in other.workers}
    assert elsewhere == one.workers[0].group.pending
    other.members.expire(START_MS + 3_001)
    assert {worker.group.pending_at(START_MS + 3_020) for worker in other.workers} == {0.0}


def test_notes_of_messages_that_are_recorded_together_come_with_their_usage() -> None:
    """What messages leave out, and what was used before a group was named, is noted at the time at which their usage is recorded."""
    one, other = members(workers=1)
    other.workers[0].record(8_000.0, START_MS)
    assert other.publish(START_MS)  # is lost
    messages = []
    for at, amount in enumerate((500.0, 300.0, 20.0)):
        now_ms = START_MS + SILENT_MS + at * REPEAT_MS
        other.workers[0].record(amount, now_ms)
        messages += other.publish(now_ms)
    first, too_old, last = messages
    assert one.hear(first, now_ms)
    assert one.hear(too_old, now_ms, counts=False)
    assert one.hear(last, now_ms)
    row = one.rows.shared_rows()
    (at,) = row.tolist()
    notes = one.segment.words[one.segment.notes_at(at) : one.segment.throttle_rounds_at(at)]
    assert (notes.tolist(), one.rows.all_totals(row).tolist()) == ([0, 0, 0], [0])
    one.members.record(now_ms)
    expected = [0] * FLEET_NOTES
    expected[LEFT_OUT - ASSUMED], expected[UNNAMED - ASSUMED] = 300, 8_000
    assert (notes.tolist(), one.rows.all_totals(row).tolist()) == (expected, [520])


def test_a_throttle_round_of_a_member_is_one_of_all() -> None:
    """The time of a throttle round at one member is that of the message at the others."""
    one, other = members()
    other.workers[0].record(1.0, START_MS)
    one.workers[0].record(1.0, START_MS)
    exchange([one, other], START_MS)
    one.workers[0].group.last_throttle_round_ms = START_MS + 5
    exchange([one, other], START_MS + 50)
    assert other.workers[0].group.last_throttle_round_ms == START_MS + 50


@settings(deadline=None)
@given(events=EVENTS, seed=st.integers(0, 2**32), count=st.integers(2, 4))
def test_loss_duplication_and_disorder_change_no_total(events: list[tuple[int, int, str]], seed: int, count: int) -> None:
    """After any loss, duplication and disorder of messages the next whole exchange brings all totals together; replay is bit-exact."""
    generator = random.Random(seed)
    some, now_ms, recorded = members(count), START_MS, 0.0
    under_way: list[tuple[FleetMember, bytes]] = []
    for one in some:  # names were received once; a lost name is repeated after 20 s
        one.workers[0].record(1.0, now_ms)
        recorded += 1.0
    exchange(some, now_ms)
    for step_ms, number, kind in events:
        now_ms += step_ms
        one = some[number % count]
        if kind == "record":
            amount = float(generator.randrange(3_000))
            one.workers[number % 2].record(amount, now_ms)
            recorded += amount
        elif kind == "publish":
            under_way += [(one, data) for data in one.publish(now_ms)]
        elif under_way:
            sender, data = generator.choice(under_way)  # it stays under way: a copy may follow
            receiver = generator.choice([other for other in some if other is not sender])
            receiver.receive(data, now_ms)
    for one in some:
        one.workers[0].record(1.0, now_ms)
        recorded += 1.0
    exchange(some, now_ms + REPEAT_MS)
    for one in some:
        assert one.known(now_ms + REPEAT_MS + 10) == [recorded] * 2
        for worker in one.workers:
            assert [step.answer for step in worker.steps] == replay(BOUND, worker.steps)


PEER_GROUPS = 3
PEER_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["message"] * 6 + ["name"] * 2 + ["forget", "lose_flight"]),
        st.integers(0, PEER_GROUPS - 1),
        st.sampled_from([0, 5]),
    ),
    min_size=20,
    max_size=60,
)


class PeerSteps:
    """A peer that hears messages, and what its usage is by plain arithmetic."""

    def __init__(self) -> None:
        self.peer = Peer(1, 2 * PEER_GROUPS)
        self.known: dict[int, tuple[int, int]] = {}  # total and flight, by id
        self.places = list(range(PEER_GROUPS))  # by id
        self.sequence = 0

    def hear(self, ids: list[int], names: list[int], flight: int) -> Usage:
        """Let the peer hear a message whose totals have all increased."""
        self.sequence += 1
        entries, its = np.zeros(len(ids), TOTAL), np.zeros(len(names), NAME)
        entries["id"], entries["flight"], entries["total"] = ids, flight, [self.total(at) for at in ids]
        its["id"], its["low"] = names, [self.places[at] for at in names]
        message = Message(1, self.sequence, 0, 0, None, its, entries, NO_THROTTLES)
        usage = self.peer.take(message, lambda digest: digest[8], START_MS)
        assert usage is not None
        return usage

    def total(self, number: int) -> int:
        """Return the total of an id in the last message."""
        return 1_000 * number + 10 * self.sequence

    def message(self, left_out: int, flight: int) -> None:
        """Compare a message about all groups, or all but the last one."""
        ids = list(range(PEER_GROUPS - (left_out == PEER_GROUPS - 1)))
        usage = self.hear(ids, [], flight)
        known, in_flight = [at for at in ids if at in self.known], flight >> 1 << 10
        assert usage.places.tolist() == [self.places[at] for at in known]
        assert usage.amounts.tolist() == [self.total(at) - self.known[at][0] for at in known]
        assert usage.rounds.tolist() == [self.places[at] for at in known if flight & 1]
        change = [in_flight - self.known[at][1] for at in known]
        assert usage.flight.tolist() == change or (not len(usage.flight) and not any(change))
        self.known.update((at, (self.total(at), in_flight)) for at in known)

    def name(self, number: int, _: int) -> None:
        """Let an id be that of another group, or of a group again; its total counts from 0 on."""
        if number in self.known:
            self.places[number] = (self.places[number] + PEER_GROUPS) % (2 * PEER_GROUPS)
        self.hear([], [number], 0)
        self.known[number] = 0, 0

    def forget(self, number: int, _: int) -> None:
        """Let the place of an id be that of another group."""
        self.peer.forget(np.array([self.places[number]]))
        self.known.pop(number, None)

    def lose_flight(self, _: int, __: int) -> None:
        """Compare the end of all usage in flight."""
        lost = self.peer.lose_flight()
        ends = {self.places[at]: -flight for at, (_, flight) in self.known.items() if flight}
        assert dict(zip(lost.places.tolist(), lost.flight.tolist(), strict=True)) == ends
        self.known = {at: (total, 0) for at, (total, _) in self.known.items()}


@settings(deadline=None)
@given(steps=PEER_STEPS)
def test_usage_of_a_peer_is_the_difference_of_its_totals(steps: list[tuple[str, int, int]]) -> None:
    """What is new in a message is each known group's increase of the total and change of the flight, whatever the last message had."""
    peer = PeerSteps()
    for group in range(PEER_GROUPS):
        peer.name(group, 0)
    for what, which, flight in steps:
        getattr(peer, what)(which, flight)


def test_a_hub_that_is_started_again_counts_nothing_twice_and_loses_nothing() -> None:
    """After the hub of either side is started again, with the history of the bus read once more, totals are equal."""
    one, other = members()
    one.workers[0].record(5_000.0, START_MS)
    history = one.publish(START_MS)
    assert other.receive(history[0], START_MS)
    one.workers[1].record(300.0, START_MS + 10)
    one.start_hub(START_MS + 20)
    other.start_hub(START_MS + 20)
    other.receive(history[0], START_MS + 20, counts=False)
    one.workers[0].record(20.0, START_MS + 30)
    for data in one.publish(START_MS + 40):
        assert other.receive(data, START_MS + 40)
    assert other.known(START_MS + 60) == [5_320.0] * 2


def test_a_member_that_joins_later_counts_what_is_used_from_then_on() -> None:
    """A new member without the history records what is used after a group was named again, and not the cumulative total."""
    one, other = members()
    one.workers[0].record(5_000.0, START_MS)
    one.publish(START_MS)
    one.workers[0].record(70.0, START_MS + 20_000)
    for data in one.publish(START_MS + 20_000):
        other.receive(data, START_MS + 20_000)
    assert other.known(START_MS + 20_020) == [70.0] * 2


def test_usage_before_the_window_is_not_recorded_at_the_end_of_a_silence() -> None:
    """Of what a member used in a silence of 30 s, the part of one window counts when its next message arrives."""
    one, other = members()
    one.workers[0].record(1.0, START_MS)
    exchange([one, other], START_MS)
    one.workers[0].record(30_000.0, START_MS + 30_000)
    for data in one.publish(START_MS + 30_000):
        other.receive(data, START_MS + 30_000)
    assert other.known(START_MS + 30_020) == [1.0 + 30_000 * 11 // 30] * 2


def test_groups_of_a_broker_without_a_node_id_stay_local() -> None:
    """A scope that is named by an address is not published; one that is named by a node id, or the whole cluster, is."""
    for scope_key, is_shared in (("kafka-1:9092", False), ("1", True), ("cluster", True)):
        one, _ = members(scope_key=scope_key)
        one.workers[0].record(10.0, START_MS)
        assert bool(one.own.changes(one.reading(), 10, START_MS, members=1)[1].size) is is_shared or not one.publish(START_MS + 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "forged"),
        (lambda data: data[:60] + bytes([data[60] ^ 1]) + data[61:], "forged"),
        (lambda data: data[:4] + b"\x02\x00" + data[6:], "of_other_versions"),
        (lambda data: b"hello", "unreadable"),
        (lambda data: data[:40], "unreadable"),
        (lambda data: data, ""),
    ],
)
def test_only_messages_with_a_valid_hmac_are_used(change: object, reason: str) -> None:
    """A message that was changed, or is of another version or no message, changes nothing and is counted by its reason."""
    one, other = members()
    one.workers[0].record(10.0, START_MS)
    (data,) = one.publish(START_MS)
    assert callable(change)
    assert other.receive(change(data), START_MS) is (not reason)
    assert other.known(START_MS + 20) == [0.0 if reason else 10.0] * 2
    if reason:
        assert getattr(other.members.counts, reason) == 1


def test_a_member_with_another_secret_or_fleet_is_not_heard() -> None:
    """Messages of another fleet are counted apart from messages with another secret of the same name, and no names are readable."""
    one, other = members()
    stranger = FleetMember("stranger", 1, BOUND, START_MS, keys=fleet_keys("other", SECRET))
    forger = FleetMember("forger", 1, BOUND, START_MS, keys=fleet_keys("edge", b"f" * 32))
    for sender in (stranger, forger):
        sender.workers[0].record(10.0, START_MS)
        (data,) = sender.publish(START_MS)
        assert not one.receive(data, START_MS)
        assert b"etl" not in data
    assert (one.members.counts.of_other_fleets, one.members.counts.forged) == (1, 1)
    assert other.known(START_MS + 20) == [0.0] * 2


def test_an_old_message_that_is_sent_again_is_not_used() -> None:
    """A copy of an old message counts as replayed: by its sequence at a member that knows the sender, by its age at one that does not."""
    one, other = members()
    one.workers[0].record(10.0, START_MS)
    (data,) = one.publish(START_MS, bus_ms=50_000)
    assert other.receive(data, START_MS, bus_ms=50_003)
    assert not other.receive(data, START_MS + 1, bus_ms=50_004)
    late = FleetMember("late", 1, BOUND, START_MS)
    assert not late.receive(data, START_MS + 20_000, bus_ms=70_000)
    assert (other.members.counts.replayed, late.members.counts.replayed) == (1, 1)
    assert late.known(START_MS + 20_020) == [0.0]


def test_a_name_in_a_message_that_was_overtaken_is_learned() -> None:
    """A message that comes after a newer one has no new totals, but its names are used: the next total counts all that was used."""
    one, other = members(workers=1)
    one.workers[0].record(1_000.0, START_MS)
    (named,) = one.publish(START_MS)
    one.workers[0].record(2_000.0, START_MS + 50)
    (newer,) = one.publish(START_MS + 50)
    assert other.receive(newer, START_MS + 90)
    assert other.known(START_MS + 100) == [0.0]
    assert other.receive(named, START_MS + 100)
    assert not other.receive(named, START_MS + 110)  # a copy
    assert other.members.counts.replayed == 1
    one.workers[0].record(4_000.0, START_MS + 120)
    (last,) = one.publish(START_MS + 120)
    assert other.receive(last, START_MS + 160)
    assert other.known(START_MS + 170) == [7_000.0]


def test_an_old_message_names_nothing() -> None:
    """A message that somebody sends again when its group was forgotten does not name it: its total would count from the beginning."""
    one, other = members(workers=1)
    one.workers[0].record(1_000.0, START_MS)
    (named,) = one.publish(START_MS)
    assert other.receive(named, START_MS)
    for second in range(1, 63):
        now_ms = START_MS + 1_000 * second
        (heartbeat,) = one.publish(now_ms)
        assert other.receive(heartbeat, now_ms)
        other.members.expire(now_ms)
    assert not other.receive(named, START_MS + 62_500)
    assert other.members.counts.replayed == 1
    one.workers[0].record(500.0, START_MS + 63_000)
    (last,) = one.publish(START_MS + 63_000)
    assert other.receive(last, START_MS + 63_000)
    assert other.known(START_MS + 63_050) == [1_500.0]


@pytest.mark.parametrize("changed", ["high", "id"])
def test_an_overtaken_message_does_not_take_an_id_from_its_group(changed: str) -> None:
    """An id keeps the group that a newer message has named, when an older one named another group by it, or the group by another id."""
    one, other = members(workers=1)
    one.workers[0].record(1_000.0, START_MS)
    (data,) = one.publish(START_MS)
    message = one.members.read(Received(0, 0, data), START_MS)
    assert message is not None
    former = message.names.copy()
    former[changed] += 1
    assert other.receive(encoded(message._replace(sequence=message.sequence + 1), KEYS), START_MS + 10)
    assert not other.receive(encoded(message._replace(names=former), KEYS), START_MS + 20)
    one.workers[0].record(500.0, START_MS + 30)
    (last,) = one.publish(START_MS + 30)
    assert other.receive(encoded(message._replace(sequence=message.sequence + 2, totals=_totals_of(one, last)), KEYS), START_MS + 40)
    assert other.known(START_MS + 50) == [1_500.0]


def _totals_of(sender: FleetMember, data: bytes) -> Entries:
    message = sender.members.read(Received(0, 0, data), START_MS)
    assert message is not None
    return message.totals


def test_silent_members_and_their_groups_are_forgotten() -> None:
    """A minute after the last message the member is gone and its group's row is free; what comes then is recorded again."""
    one, other = members(workers=1)
    one.workers[0].record(10.0, START_MS)
    exchange([one, other], START_MS)
    other.members.expire(START_MS + GONE_MS)
    assert [peer.about.member for peer in other.members.peers.values() if peer.about] == ["edge-0"]
    other.members.expire(START_MS + GONE_MS + 1)
    assert other.members.peers == {}
    one.workers[0].record(5.0, START_MS + GONE_MS + 100)
    exchange([one, other], START_MS + GONE_MS + 100)
    assert other.known(START_MS + GONE_MS + 200)[0] == 15.0


def test_ids_that_lie_are_refused() -> None:
    """A message whose id would need too much memory is unreadable, although its HMAC is valid."""
    one, other = members()
    one.workers[0].record(10.0, START_MS)
    for worker in one.workers:
        worker.publish(START_MS)
    names, totals = one.own.changes(one.reading(), 10, START_MS, members=1)
    totals["id"] = 1 << 20
    data = encoded(Message(one.segment.incarnation, 1, 0, 0, None, names, totals, NO_THROTTLES), KEYS)
    assert not other.receive(data, START_MS)
    assert other.members.counts.unreadable == 1


@settings(deadline=None)
@given(events=EVENTS, seed=st.integers(0, 2**32), lag_ms=st.sampled_from([20, 100, 250]))
def test_decisions_with_assumed_usage_can_be_replayed(events: list[tuple[int, int, str]], seed: int, lag_ms: int) -> None:
    """With assumed usage a plain group with the same records has the same verdicts, and afterwards no assumed unit is left in any total."""
    generator = random.Random(seed)
    some, now_ms, recorded = members(3), START_MS, 0.0
    for one in some:
        one.lag_ms = lag_ms
    for step_ms, number, kind in events:
        now_ms += step_ms
        one = some[number % 3]
        if kind == "record":
            amount = float(generator.randrange(3_000))
            one.workers[number % 2].record(amount, now_ms)
            recorded += amount
        else:
            exchange(some, now_ms)
    exchange(some, now_ms + REPEAT_MS)
    for one in some:
        assert one.known(now_ms + REPEAT_MS + 10) == [recorded] * 2
        for worker in one.workers:
            assert [step.answer for step in worker.steps] == replay(BOUND, worker.steps)


def test_usage_that_cannot_be_known_yet_is_assumed() -> None:
    """A member that has used as much as another one assumes the same use within the lag, without the present request."""
    one, other = members(workers=1)
    one.lag_ms = 250
    for at_ms in range(0, 30_000, 50):
        for member in (one, other):
            member.workers[0].record(20.0, START_MS + at_ms)  # 400 units per second each, of 1,000 together
        exchange([one, other], START_MS + at_ms)
    now_ms, group = START_MS + 30_000, one.workers[0].group
    group.record(500.0, now_ms)  # within the last 250 ms this member used 500 + 5 x 20 units
    one.rows.set_others(0, 1)
    room = next(extra for extra in range(0, 5_000, 10) if group.would_throttle_ms(extra, now_ms) > 0)
    one.rows.set_others(250, 1)
    assumed = next(extra for extra in range(0, 5_000, 10) if group.would_throttle_ms(extra, now_ms) > 0)
    assert room - 600 - 20 <= assumed <= room - 600 + 20


def test_a_group_shows_what_it_knows_of_other_members() -> None:
    """A shared group shows usage of others, the assumption of its last decision, the lag and the members; a local group shows nothing."""
    one, other = members(workers=1)
    one.lag_ms = other.lag_ms = 100
    for at_ms in range(0, 2_000, 50):
        one.workers[0].record(100.0, START_MS + at_ms)
        other.workers[0].record(200.0, START_MS + at_ms)
        exchange([one, other], START_MS + at_ms)
    shown = one.workers[0].group.fleet_usage
    assert (shown.elsewhere_total, shown.lag_ms, shown.others) == (200.0 * 40 - 200.0, 100, 1)  # the last message is not recorded yet
    assert 0.9 <= shown.factor <= 1.0
    assert shown.assumed > 0
    (local, _) = members(workers=1, scope_key="kafka-1:9092")
    local.workers[0].record(1.0, START_MS)
    assert local.workers[0].group.fleet_usage is None
