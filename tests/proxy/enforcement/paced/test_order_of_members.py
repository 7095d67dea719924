"""The order of members that wait: the same as if all of them were looked at, at a cost that does not grow with their number."""

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from bench.paced import admission
from bench.paced.levels import ProductLine
from bench.paced.loads import BOUND, BURST_NS
from quota.paced_schedule import MS_NS, SECOND_NS

STEP = st.tuples(st.integers(0, 7), st.integers(0, 4), st.sampled_from([1_000, 100_000, 3_000_000]), st.sampled_from([0, 0, 1, 30, 900]))
"""Connection, its principal at its first step, bytes of its request, and pause after it in ms."""


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, min_size=5, max_size=60))
def test_the_order_is_that_of_all_members(steps: list[tuple[int, int, int, int]]) -> None:
    """The request that goes next is one of the member that may pass first, and of those that may pass now of the one furthest behind."""
    line, now_ns, connections = ProductLine(BOUND, BURST_NS), SECOND_NS, dict[int, admission.Connection]()
    for number, (at, principal, size, pause_ms) in enumerate(steps):
        one = connections.setdefault(at, admission.Connection(0, size, 0, (principal, "c")))
        if one not in line.waiting.values():
            one.size = size
            line.join(one, now_ns)
        check(line, now_ns)
        if number % 2:
            line.next(now_ns)
        check(line, now_ns)
        if number % 7 == 3:
            line.group.update_bound(BOUND * (2 if number % 3 else 0.5))
            line.group.rescale(now_ns // MS_NS)
        now_ns += pause_ms * MS_NS


def check(line: ProductLine, now_ns: int) -> None:
    """Compare the request that goes next with what a look at all members finds."""
    root, burst_ns = line.group.line.root, line.group.schedule.burst_ns
    waiting = [one for one in root.members.values() if one.waits]
    assert sorted(one.virtual_ns for one in waiting) == [virtual_ns for virtual_ns, _, _ in root.in_order]
    if waiting:
        due_ns, place = root.soonest(now_ns, burst_ns)
        keys = [(max(one.soonest(now_ns, burst_ns)[0], one.due_ns(burst_ns), now_ns), one.virtual_ns) for one in waiting]
        assert (due_ns, place.member.virtual_ns) == min(keys)


def calls(members: int) -> int:
    """Return the number of calls that a check and the pass of one of so many waiting members make."""
    line, now_ns = ProductLine(BOUND, BURST_NS), SECOND_NS
    for number in range(members):
        line.join(admission.Connection(0, 16_000, 0, (number, "c")), now_ns)
    while line.next(now_ns) is not None:
        pass
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in ("call", "c_call")

    now_ns += 40 * MS_NS
    sys.setprofile(count)
    try:
        passed = line.next(now_ns)
    finally:
        sys.setprofile(None)
    assert passed is not None
    return counted


def test_a_check_does_not_look_at_all_members_that_wait() -> None:
    """A check, and the request that passes, make no more calls with 2,000 principals than with 200: each of them checks once a second."""
    assert calls(2_000) <= calls(200) + 5
