"""Hypothesis searches for the program that gets the most; a program that gets more than allowed is minimised and returned."""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import hypothesis
import hypothesis.errors
from hypothesis import HealthCheck, Phase, given, settings, target
from hypothesis import strategies as st

from protocol.steps import ITEMS_PER_STEP
from proxy.session.parsed_response import AT_ONCE_BYTES
from tests.adversary.frames import ASKED
from tests.adversary.program import ACTIONS, CLIENT_IDS, PAUSES, SLOTS, WAITS_MS, Circumstances, Program, Step
from tests.adversary.proxy_fixture import UNIT_SERVICE_US, Outcome, Spoil, run

SIZES = (100, 2_000, 10_000, 36_000, 36_000, 80_000, 300_000)
KEPT_SIZES = (0, 1_000, 32_000, 32_000, 1_000_000, 1_000_000, 4_000_000)
BOUND = 4_000.0
LEAVING = ("half_close", "close", "reset")
WANTED = {
    "produce": ("produce", "produce", "produce_unacked"),
    "fetch": ("fetch",),
    "request": ("ask",),
    "items": ("walk", "walk", "ask"),
    "memory": ("begin_change", "begin_change", "name", "ask", "refuse_reading"),
    "newcomer": ("produce_as_new", "produce_as_new", "produce"),
}
GOALS = ("produce", "fetch", "request", "memory", "items", "newcomer", "paced_produce", "paced_fetch", "paced_request")
PACED = "paced_"
ITEM_COUNTS = (2, 200, 300, 1_000, 9_000)
CALL_ITEMS = ITEMS_PER_STEP + AT_ONCE_BYTES // 2
"""One call may end a walk and then read the short frames after it, in which an item takes at least two bytes."""
SPARE_GOALS = ("produce", "fetch", "request", "newcomer")
"""Goals that small requests suffice for, so that more steps fit into a run."""
TOLD = {
    "newcomer": ("goal", "bound", "each_client_id"),
    **dict.fromkeys(("request", "memory", "items"), ("goal", "bound", "service_us")),
}
"""Fields that do not change when a program is minimised."""
SHRINKS_MAX = 150
SECONDS = 30
STEPS_MAX = 160


class Hole(NamedTuple):
    """A program that gets more than allowed.

    Attributes:
        why: what is wrong with the outcome.
    """

    program: Program
    outcome: Outcome
    why: str


class _FoundError(Exception):
    pass


class _TimeUpError(Exception):
    pass


def circumstances(goal: str) -> st.SearchStrategy[Circumstances]:
    """Return a strategy for configurations of the proxy."""
    paced, goal = goal.startswith(PACED), goal.removeprefix(PACED)
    if goal == "memory":
        return st.builds(
            Circumstances,
            mode=st.just("delay"),
            goal=st.just(goal),
            bound=st.just(float(4 << 20)),
            each_client_id=st.just(False),
            logs_in=st.just(False),
            session_ms=st.just(0),
            service_us=st.just(0),
            metadata_bytes=st.sampled_from((0, 2_000_000)),
            answer_items=st.just(0),
            paced=st.just(False),
            workers=st.just(1),
        )
    if goal == "items":
        return st.builds(
            Circumstances,
            mode=st.sampled_from(("delay", "mute")),
            goal=st.just(goal),
            bound=st.just(float(CALL_ITEMS)),
            each_client_id=st.just(False),
            logs_in=st.just(False),
            session_ms=st.just(0),
            service_us=st.just(0),
            metadata_bytes=st.sampled_from((0, 100_000)),
            answer_items=st.sampled_from((0, 300, 5_000)),
            paced=st.just(False),
            workers=st.just(1),
        )
    is_time, is_bytes = goal == "request", goal in ("produce", "fetch")
    return st.builds(
        Circumstances,
        mode=st.sampled_from(("delay", "mute")),
        goal=st.just(goal),
        bound=st.just(0.1 if is_time else BOUND),
        each_client_id=st.booleans() if is_bytes else st.just(goal == "newcomer"),
        logs_in=st.sampled_from((False, False, True)) if is_bytes else st.just(False),
        session_ms=st.just(0) if is_time else st.sampled_from((0, 0, 0, 2_000)),
        service_us=st.just(UNIT_SERVICE_US) if is_time else st.sampled_from((0, 0, 2_000)),
        metadata_bytes=st.just(0),
        answer_items=st.just(0),
        paced=st.just(paced),
        workers=st.sampled_from((1, 2)) if paced else st.just(1),
    )


def _sizes(goal: str) -> st.SearchStrategy[int]:
    if goal == "request":
        return st.integers(0, len(ASKED) - 1)
    if goal == "items":
        return st.sampled_from(ITEM_COUNTS)
    return st.sampled_from(KEPT_SIZES if goal == "memory" else SIZES)


def steps(goal: str, actions: tuple[str, ...]) -> st.SearchStrategy[Step]:
    """Return a strategy for one step."""
    return st.builds(
        Step,
        action=st.sampled_from(actions),
        slot=st.sampled_from((-1, -1, 0, 1)) if goal == "memory" else st.integers(0, SLOTS - 1),
        size=_sizes(goal),
        count=st.sampled_from((1, 1, 1, 2, 5, 16)),
        version=st.integers(0, 3),
        client_id=st.integers(0, CLIENT_IDS - 1),
        pause=st.sampled_from(PAUSES),
        wait_ms=st.sampled_from(WAITS_MS),
    )


def programs(goal: str) -> st.SearchStrategy[Program]:
    """Return a strategy for programs of a client that tries to get the most of one resource."""
    resource = goal.removeprefix(PACED)
    any_step = steps(resource, (*WANTED[resource], *WANTED[resource], *ACTIONS))
    visit = st.tuples(steps(resource, WANTED[resource]), steps(resource, LEAVING)).map(
        lambda both: (both[0], both[1]._replace(slot=both[0].slot))
    )
    either = st.one_of(any_step.map(lambda step: (step,)), visit)
    return st.builds(
        Program,
        circumstances(goal),
        st.lists(either, min_size=1, max_size=4).map(lambda some: sum(some, ())),
        st.lists(any_step, max_size=2).map(tuple),
        st.just(SECONDS),
        st.just(STEPS_MAX if resource in SPARE_GOALS else STEPS_MAX // 4),
    )


def wrong_with(outcome: Outcome) -> str | None:
    """Return what is wrong with an outcome, or None when nothing is."""
    if outcome.faults:
        return "; ".join(outcome.faults)
    if outcome.ratio > 1.0:
        return f"{outcome.passed:.0f} passed and {outcome.allowed:.0f} were allowed, {outcome.ratio:.2f} times as many"
    if outcome.unrecorded > 0:
        return f"{outcome.unrecorded:.0f} passed and were never recorded"
    return None


def search(goal: str, *, examples: int, number: int | None = None, seconds: float | None = None, spoil: Spoil | None = None) -> Hole | None:
    """Search for a program that gets more than allowed; return the smallest one found, or None.

    Args:
        goal: one of `GOALS`.
        examples: how many programs are tried at most; those that minimise a found one do not count.
        number: seed of the search; None: the fixed default.
        seconds: no new program starts after this time.
        spoil: introduces a fault into the proxy.
    """
    found: list[Hole] = []
    end_s = None if seconds is None else time.monotonic() + seconds

    def attack(program: Program) -> None:
        if found:
            return
        if end_s is not None and time.monotonic() > end_s:
            raise _TimeUpError
        hole = look_at(program, spoil)
        if hole is not None:
            found.append(hole)
            raise _FoundError

    wanted = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=number is None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    looking = wanted(given(programs(goal))(attack))
    if number is not None:
        looking = hypothesis.seed(number)(looking)
    with contextlib.suppress(_FoundError, _TimeUpError, hypothesis.errors.Flaky):
        looking()
    return smallest(found[0], spoil) if found else None


def look_at(program: Program, spoil: Spoil | None, *, guides: bool = True) -> Hole | None:
    """Run a program; return the hole that it finds, or None."""
    outcome = run(program, spoil)
    if guides:
        target(outcome.ratio, label="what passed, by what may")
    why = wrong_with(outcome)
    return None if why is None else Hole(program, outcome, why)


def smallest(hole: Hole, spoil: Spoil | None) -> Hole:
    """Remove steps and set fields to their defaults as long as the outcome stays wrong."""
    runs = 0
    goes_on = True
    while goes_on:
        goes_on = False
        for program in _smaller(hole.program):
            if (runs := runs + 1) > SHRINKS_MAX:
                return hole
            found = look_at(program, spoil, guides=False)
            if found is not None:
                hole, goes_on = found, True
                break
    return hole


def _smaller(program: Program) -> Iterator[Program]:
    if program.before:
        yield program._replace(before=())
    for name in ("before", "steps"):
        steps = getattr(program, name)
        for at in range(len(steps)):
            if len(steps) > 1:
                yield program._replace(**{name: steps[:at] + steps[at + 1 :]})
        for at, step in enumerate(steps):
            for field, usual in Step._field_defaults.items():
                if getattr(step, field) != usual and field != "size":
                    yield program._replace(**{name: (*steps[:at], step._replace(**{field: usual}), *steps[at + 1 :])})
    reported = (*TOLD.get(program.circumstances.goal, ("goal", "bound")), "paced", "workers")
    for field, usual in Circumstances._field_defaults.items():
        if getattr(program.circumstances, field) != usual and field not in reported:
            yield program._replace(circumstances=program.circumstances._replace(**{field: usual}))
