"""A throttle that a closed connection has not served is taken over by the next connection of its group."""

from proxy.enforcement.groups.child_groups import ChildGroup
from proxy.enforcement.groups.departed_throttles import THROTTLES_MAX, DepartedThrottles
from proxy.enforcement.groups.enforced_groups import EnforcedGroup, EnforcedMutationGroup
from proxy.session.throttle.departed_throttles import longest_throttle, take_throttle


def test_each_new_connection_takes_the_longest() -> None:
    """Each new connection takes over the longest throttle that is left, and a fourth finds none of three."""
    throttles = DepartedThrottles()
    for until_ms in (300, 100, 200):
        throttles.leave(until_ms, 0)
    assert [throttles.take(0) for _ in range(4)] == [300, 200, 100, 0]


def test_what_is_over_is_not_taken() -> None:
    """A throttle that is over is not taken over."""
    throttles = DepartedThrottles()
    throttles.leave(100, 0)
    assert throttles.take(100) == 0
    assert len(throttles.until_ms) == 0


def test_beyond_the_limit_the_longest_holds_for_all() -> None:
    """Beyond 1,024 throttles the longest of them applies to every new connection until it is over."""
    throttles = DepartedThrottles()
    for at in range(THROTTLES_MAX):
        throttles.leave(1_000 + at, 0)
    assert len(throttles.until_ms) == THROTTLES_MAX
    throttles.leave(500, 0)
    assert [throttles.take(0) for _ in range(3)] == [1_000 + THROTTLES_MAX - 1] * 3
    throttles.leave(5_000, 10)
    assert [throttles.take(4_999) for _ in range(3)] == [5_000] * 3
    assert throttles.take(5_000) == 0
    throttles.leave(6_000, 5_000)
    assert [throttles.take(5_000) for _ in range(2)] == [6_000, 0]


def test_a_longer_throttle_of_the_same_connection_replaces_its_first() -> None:
    """A longer throttle of a connection replaces the one it left before."""
    throttles = DepartedThrottles()
    throttles.leave(100, 0)
    throttles.leave(200, 0, instead_of_ms=100)
    assert (throttles.take(0), throttles.take(0)) == (200, 0)
    throttles.leave(300, 0, instead_of_ms=200)
    assert throttles.take(0) == 300


def test_a_member_of_a_group_serves_the_throttles_of_its_parents() -> None:
    """A connection takes over the longest throttle of its group and the parents of that."""
    parent = EnforcedGroup({"group": "tenant"}, 10.0)
    one, other = ChildGroup({"client-id": "a"}, 5.0, parent), ChildGroup({"client-id": "b"}, 5.0, parent)
    parent.leave_throttle(900, 0)
    one.leave_throttle(500, 0)
    assert longest_throttle(other, 0) == (parent, 900)
    assert take_throttle(one, 0) == (parent, 900)
    assert take_throttle(one, 0) == (one, 500)
    assert take_throttle(other, 0) is None


def test_a_group_without_a_quota_has_no_throttles() -> None:
    """No throttle of a group is taken over after its quota was removed."""
    group = EnforcedMutationGroup({"user": "a"}, 10.0)
    group.leave_throttle(900, 0)
    group.update_bound(float("1.7976931348623157e308"))
    assert take_throttle(group, 0) is None
