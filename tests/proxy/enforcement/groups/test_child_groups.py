"""Groups with parents: each group of the chain records with Kafka's arithmetic, and the longest throttle applies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.groups.child_groups import ChildGroup, ChildMutationGroup, enforced_group
from proxy.enforcement.groups.enforced_groups import EnforcedGroup, EnforcedMutationGroup
from quota.entity import UNLIMITED

BOUNDS = st.sampled_from([100.0, 250.0, 1_000.0, 5_000.0, UNLIMITED])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["record", "record", "record", "within", "unchecked", "ask"]),
        st.integers(0, 3),
        st.integers(0, 6_000),
        st.sampled_from([0, 1, 300, 1_000, 4_000, 12_000]),
    ),
    max_size=40,
)


def state_of(group: EnforcedGroup) -> object:
    return group.recorded_total, group.live_samples(), [verdict.throttle_ms for verdict in group.verdicts]


@given(st.tuples(BOUNDS, BOUNDS, BOUNDS, BOUNDS), STEPS, st.none() | st.just(1_000))
def test_each_group_of_a_chain_is_kafkas(bounds: tuple[float, ...], steps: list[tuple[str, int, int, int]], cap_ms: int | None) -> None:
    """Every group of a chain has the state of a lone group with the same records, and the longest throttle of the chain is returned."""
    top = EnforcedGroup({"g": "top"}, bounds[0], cap_ms=cap_ms)
    middle = ChildGroup({"g": "middle"}, bounds[1], top, cap_ms=cap_ms)
    groups = [
        top,
        middle,
        ChildGroup({"g": "a"}, bounds[2], middle, cap_ms=cap_ms),
        ChildGroup({"g": "b"}, bounds[3], middle, cap_ms=cap_ms),
    ]
    alone = [EnforcedGroup({}, bound, cap_ms=cap_ms) for bound in bounds]
    above = [[0], [1, 0], [2, 1, 0], [3, 1, 0]]
    now_ms = 0
    for what, at, amount, pause_ms in steps:
        now_ms += pause_ms
        group, chain = groups[at], [alone[one] for one in above[at]]
        if what == "record":
            assert group.record(amount, now_ms) == max(one.record(amount, now_ms) for one in chain)
        elif what == "unchecked":
            group.record_unchecked(amount, now_ms)
            for one in chain:
                one.record_unchecked(amount, now_ms)
        elif what == "within":
            has_room = all(one.has_room(amount, now_ms) for one in chain)
            assert group.record_within(amount, now_ms) is has_room
            if has_room:
                assert all(one.record_within(amount, now_ms) for one in chain)
        else:
            assert group.would_throttle_ms(amount, now_ms) == max(one.would_throttle_ms(amount, now_ms) for one in chain)
            assert group.certain_room(now_ms) == min(one.certain_room(now_ms) for one in chain)
            assert group.max_value_in_window() == min(one.max_value_in_window() for one in chain)
    assert [state_of(group) for group in groups] == [state_of(one) for one in alone]


def test_the_longest_throttle_and_who_it_is_of() -> None:
    """The group of the chain with the longest throttle is limiting and owns the throttle rounds; at a tie it is the child."""
    parent = EnforcedGroup({"g": "parent"}, 500.0)
    child, sibling = ChildGroup({"g": "child"}, 1_000.0, parent), ChildGroup({"g": "sibling"}, 1_000.0, parent)
    assert child.record(6_000.0, 0) == 2_000
    assert (child.limiting, child.own_ms, child.above_ms) == (parent, 0, 2_000)
    child.last_throttle_round_ms = 7
    assert (parent.last_throttle_round_ms, sibling.last_throttle_round_ms != 7) == (7, True)
    assert sibling.record(14_000.0, 0) == 30_000
    assert (sibling.limiting, sibling.own_ms, sibling.above_ms) == (parent, 4_000, 30_000)
    assert sibling.last_throttle_round_ms == 7
    parent.update_bound(1e9)
    assert sibling.record(1_000.0, 0) == 5_000
    assert sibling.limiting is sibling
    assert sibling.last_throttle_round_ms != 7


def test_fetches_under_way_count_for_the_parent() -> None:
    """Pending fetches of a sibling take room of the parent."""
    parent = EnforcedGroup({"g": "parent"}, 1_000.0)
    one, other = ChildGroup({"g": "one"}, 1_000.0, parent), ChildGroup({"g": "other"}, 1_000.0, parent)
    for group in (one, other):
        group.record(1.0, 0)
    other.pending += 9_000
    assert parent.pending == 9_000
    assert one.would_throttle_ms(one.pending + 2_000, 0) == 1_002
    assert one.certain_room(0) == pytest.approx(1_000, abs=5)
    assert one.predict_throttle(2_000, 0) == 1_002
    assert (one.limiting, [verdict.throttle_ms for verdict in parent.verdicts], list(one.verdicts)) == (parent, [1_002], [])
    other.pending -= 9_000
    assert parent.pending == 0
    assert one.predict_throttle(2_000, 0) == 0


def test_a_group_that_gets_a_parent_goes_on() -> None:
    """A group that gets or loses a parent keeps its samples, its totals and its metering number."""
    group = EnforcedGroup({"g": "a"}, 100.0)
    group.record(3_000.0, 0)
    group.record_throttle(20_000, 0)
    group.meter_ref = 7
    child = enforced_group(group.tags, group.bound, EnforcedGroup({"g": "b"}, 1e9), **group.like())
    group.copy_to(child)
    again = enforced_group(child.tags, child.bound, **child.like())
    child.copy_to(again)
    for one in (child, again):
        assert (state_of(one), one.meter_ref, one.throttle_count, one.throttle_ms_total) == (state_of(group), 7, 1, 20_000)
        assert one.throttle_time is group.throttle_time
    assert child.record(0.0, 500) == group.record(0.0, 500) == again.record(0.0, 500)


MUTATIONS = st.lists(
    st.tuples(st.sampled_from(["strict", "permissive", "back"]), st.integers(0, 2), st.integers(0, 30), st.sampled_from([0, 100, 2_000])),
    max_size=40,
)


@given(st.tuples(*[st.sampled_from([0.5, 1.0, 4.0])] * 3), MUTATIONS)
def test_buckets_of_a_chain(bounds: tuple[float, float, float], steps: list[tuple[str, int, int, int]]) -> None:
    """A strict charge is refused by all buckets if one is exhausted, a permissive charge applies to all, and the longest wait applies."""
    top = EnforcedMutationGroup({"g": "top"}, bounds[0])
    groups = [top, ChildMutationGroup({"g": "a"}, bounds[1], top), ChildMutationGroup({"g": "b"}, bounds[2], top)]
    alone = [EnforcedMutationGroup({}, bound) for bound in bounds]
    now_ms = 1_000_000
    for what, at, permits, pause_ms in steps:
        now_ms += pause_ms
        chain = [alone[at], alone[0]] if at else [alone[0]]
        if what == "strict":
            exhausted = [one for one in chain if one.is_exhausted(now_ms)]
            assert groups[at].is_exhausted(now_ms) is bool(exhausted)
            assert groups[at].affordable(now_ms) == min(one.tokens(now_ms) for one in chain)
            expected = max((one.record(permits, now_ms) for one in exhausted), default=0)
            if not exhausted:
                for one in chain:
                    one.record(permits, now_ms)
            assert groups[at].record(permits, now_ms) == expected
            assert groups[at].wait_ms(now_ms) == max(one.wait_ms(now_ms) for one in chain)
        elif what == "permissive":
            assert groups[at].record_permissive(permits, now_ms) == max(one.record_permissive(permits, now_ms) for one in chain)
        else:
            groups[at].record_unchecked(-permits, now_ms)
            for one in chain:
                one.record_unchecked(-permits, now_ms)
    assert [group.tokens(now_ms) for group in groups] == [one.tokens(now_ms) for one in alone]
    assert [group.verdicts for group in groups] == [one.verdicts for one in alone]
