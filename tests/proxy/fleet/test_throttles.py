"""Throttles that connections leave at one member are served at another one, by one connection each."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.mode import Mode
from proxy.fleet.clock import Clock
from proxy.shared_usage.departed_rows import DEPARTED_MAX
from tests.support.fleet.fleet_members import FleetMember, exchange
from tests.support.fleet.fleet_proxies import AGE_MS, PUBLISH_MS, FleetProxies
from tests.support.frames.kafka_frames import produced
from tests.support.memory.verdicts import FREE_BYTES, PRODUCE_VERSION, produce_for, produce_of

BOUND = 1_000.0
THROTTLE_MS = 4_000
KNOWN_MS = 2 * AGE_MS
START_MS = 1_000_000
BUS_MS = 5_000_000
"""Time of the bus at `START_MS`."""


def members(count: int = 2) -> list[FleetMember]:
    """Return members that know a common group, with clocks of the bus that differ by some ms."""
    some = [FleetMember(f"edge-{number}", 2, BOUND, START_MS) for number in range(count)]
    for number, one in enumerate(some):
        one.clock = Clock(BUS_MS + 3 * number, START_MS)
        one.workers[0].record(1.0, START_MS)
    exchange(some, START_MS)
    return some


def test_a_throttle_is_served_at_another_member_and_once() -> None:
    """A connection that comes to another member serves the throttle that was left here; the next one at either member serves none."""
    one, other = members()
    one.workers[0].group.leave_throttle(START_MS + 8_000, START_MS + 10)
    exchange([one, other], START_MS + 50)
    assert abs(other.workers[1].group.departed_until(START_MS + 60) - (START_MS + 8_000)) <= 3
    assert abs(other.workers[1].group.take_throttle(START_MS + 70) - (START_MS + 8_000)) <= 3
    exchange([one, other], START_MS + 100)
    for member in (one, other):
        assert member.workers[0].group.take_throttle(START_MS + 120) == 0


def test_a_throttle_that_is_taken_where_it_was_left_is_gone_everywhere() -> None:
    """When a connection takes a throttle at the member where it was left, no connection at another member serves it."""
    one, other = members()
    one.workers[0].group.leave_throttle(START_MS + 8_000, START_MS + 10)
    one.workers[0].group.leave_throttle(START_MS + 9_000, START_MS + 10)
    exchange([one, other], START_MS + 50)
    assert one.workers[1].group.take_throttle(START_MS + 60) == START_MS + 9_000
    exchange([one, other], START_MS + 100)
    assert abs(other.workers[0].group.take_throttle(START_MS + 110) - (START_MS + 8_000)) <= 3
    assert other.workers[0].group.take_throttle(START_MS + 110) == 0


def test_a_throttle_of_a_group_without_usage_travels() -> None:
    """A group that shares nothing but throttles, as one of controller mutations, is named with its first throttle."""
    one, other = (FleetMember(name, 1, BOUND, START_MS) for name in "ab")
    one.workers[0].group.leave_throttle(START_MS + 8_000, START_MS + 10)
    exchange([one, other], START_MS + 50)
    assert other.workers[0].group.take_throttle(START_MS + 60) == START_MS + 8_000


def test_a_throttle_that_ends_needs_no_message() -> None:
    """Throttles that have ended are served nowhere, and a message that arrives after the end changes nothing."""
    one, other = members()
    one.workers[0].group.leave_throttle(START_MS + 200, START_MS + 10)
    late = one.publish(START_MS + 50)
    for data in late:
        other.receive(data, START_MS + 300)
    assert other.workers[0].group.take_throttle(START_MS + 300) == 0
    assert len(one.members.throttles.changes(one.clock, START_MS + 300)) == 0


def test_a_throttle_for_all_connections_is_one_for_all_members() -> None:
    """When a worker dies, the longest throttle of its connections applies to every new connection of the group at all members."""
    one, other = members()
    one.workers[0].group.note_throttled(START_MS + 7_000, START_MS + 10)
    one.segment.exit(0, START_MS + 20)
    exchange([one, other], START_MS + 50)
    for _ in range(3):
        assert abs(other.workers[0].group.take_throttle(START_MS + 60) - (START_MS + 7_000)) <= 3


@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from(["leave", "leave", "take", "exchange"]), st.integers(100, 5_000)), max_size=40
    )
)
def test_no_throttle_is_lost_and_none_is_served_twice_without_lag(steps: list[tuple[int, str, int]]) -> None:
    """With an exchange after each step, the throttles at all members are those of one process, within the difference of their clocks."""
    some = members(3)
    left: list[int] = []
    now_ms = START_MS + 10
    for number, kind, length_ms in steps:
        group = some[number].workers[number % 2].group
        if kind == "leave" and len(left) < DEPARTED_MAX:
            group.leave_throttle(now_ms + 10_000 + length_ms, now_ms)
            left.append(now_ms + 10_000 + length_ms)
        elif kind == "take":
            taken = group.take_throttle(now_ms)
            assert bool(taken) is bool(left)
            if left:
                left.remove(next(end for end in sorted(left, reverse=True) if abs(end - taken) <= 6))
        exchange(some, now_ms)
        now_ms += 20
    for member in some:
        with member.segment.departed.locked(0) as row:
            assert row is not None
        ends = sorted(end for row in member.rows.shared_rows().tolist() for end in _ends(member, row))
        assert len(ends) == len(left)
        assert all(abs(one - other) <= 6 for one, other in zip(ends, sorted(left), strict=True))


def _ends(member: FleetMember, row: int) -> list[int]:
    with member.segment.departed.locked(row) as throttles:
        assert throttles is not None
        return list(throttles.until_ms)


def fleet() -> FleetProxies:
    """Return two members with one quota."""
    return FleetProxies(2, produce=BOUND, mode=Mode.MUTE)


def test_a_client_that_moves_within_the_lag_serves_its_throttle() -> None:
    """A client leaves a throttle at one member, and connects to the other one at once: its first request waits for the same time."""
    with fleet() as proxies:
        before = proxies.connect(0)
        before.asks(produce_for(THROTTLE_MS, 1), produced(1, version=PRODUCE_VERSION))
        proxies.wait(3 * PUBLISH_MS)
        before.connection.client.connection_lost(None)
        after = proxies.connect(1)
        assert after.sends(produce_of(100, 2)) == []
        proxies.wait(THROTTLE_MS - 4 * PUBLISH_MS)
        assert after.forwarded() == []
        proxies.wait(2 * PUBLISH_MS)
        assert after.forwarded() == [2]


def test_a_new_client_of_a_group_at_its_bound_waits_until_throttles_are_known() -> None:
    """While the group is over its bound, and nobody has left a throttle, a new connection's first request waits for two lags."""
    with fleet() as proxies:
        proxies.connect(0).asks(produce_for(THROTTLE_MS, 1), produced(1, version=PRODUCE_VERSION))
        proxies.wait(3 * PUBLISH_MS)
        new = proxies.connect(1)
        assert new.sends(produce_of(100, 2)) == []
        proxies.wait(KNOWN_MS - 1)
        assert new.forwarded() == []
        proxies.wait(1)
        assert new.forwarded() == [2]
        new.answers(produced(2, version=PRODUCE_VERSION))
        proxies.wait(THROTTLE_MS + 1_000)
        assert new.sends(produce_of(100, 3)) == [3]


def test_a_new_client_of_a_group_within_its_bound_does_not_wait() -> None:
    """Below the bound, and where only one member uses the group, a first request is forwarded at once."""
    with fleet() as proxies:
        proxies.connect(0).asks(produce_of(FREE_BYTES // 2, 1), produced(1, version=PRODUCE_VERSION))
        proxies.wait(3 * PUBLISH_MS)
        assert proxies.connect(1).sends(produce_of(100, 2)) == [2]
    with fleet() as proxies:
        proxies.connect(0).asks(produce_for(THROTTLE_MS, 1), produced(1, version=PRODUCE_VERSION))
        proxies.wait(3 * PUBLISH_MS)
        assert proxies.connect(0).sends(produce_of(100, 2)) == [2]
