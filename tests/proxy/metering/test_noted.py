"""What the event loop writes as words and records is what the writer reads."""

import math
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from metering_format.event_kinds import RECORD, REMOTE, SKIPPED, UNRECORD
from proxy.enforcement.groups.child_groups import ChildGroup
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.meter.batch import BATCH_WORDS, Batch
from proxy.meter.buffer import DecisionBuffer, read_abandoned
from proxy.meter.meter import REPEATED_MAX, Meter, Metered, TracingMeter
from proxy.meter.record import GROUPS_MAX, RUN_VALUE_END
from tests.support.metering.noted_decisions import decisions_of

CONNECTION, API = 5, 9


class Notes:
    """A meter with groups, and the decisions that it has to record: (group, ms, value, wait, kind)."""

    def __init__(self, meter_of_level: type[Meter] = Meter, buffer: DecisionBuffer | None = None, *, takes: bool = True) -> None:
        self.batches: list[Batch] = []
        self.takes = takes
        self.meter = meter_of_level(self._take, self._describe, 0, lambda: self.groups, buffer=buffer)
        above = EnforcedGroup({"client-id": "above"}, 1e9)
        self.groups: list[EnforcedGroup] = [EnforcedGroup({"client-id": "a"}, 1e9), EnforcedGroup({"client-id": "b"}, 2e9), above]
        self.groups.append(ChildGroup({"client-id": "child"}, 1e9, above))
        self.names: list[str] = []
        self.expected: list[tuple[str, int, int, int, int]] = []
        self.now_ms = 1_000

    def _take(self, batch: Batch) -> bool:
        if self.takes:
            self.batches.append(batch)
        return self.takes

    def _describe(self, group: Metered) -> tuple[dict[str, Any], dict[str, Any]]:
        assert isinstance(group, EnforcedGroup)
        return {"quota_type": "Produce", "name": group.tags["client-id"]}, {}

    def expects(self, group: EnforcedGroup, values: list[int], wait_ms: int = 0, kind: int = RECORD) -> None:
        """Add the decisions of a group and its parents to the expected ones."""
        if group.parent is not None:
            self.expects(group.parent, values, 0 if kind == RECORD else wait_ms, kind)
        self.expected += [(group.tags["client-id"], self.now_ms, value, wait_ms, kind) for value in values]

    def read(self) -> list[tuple[str, int, int, int, int]]:
        """Return the decisions of all batches in order."""
        found: list[tuple[str, int, int, int, int]] = []
        names: dict[int, str] = {}
        for batch in self.batches:
            assert batch.first_seq == len(found)
            names |= {fact["group"]["group_ref"]: fact["group"]["name"] for fact in batch.facts if "group" in fact}
            rows = decisions_of(batch)
            assert len(rows) == batch.count
            found += [(names[row["group_ref"]], row["ts_ms"], row["value"], row["throttle_ms"], row["kind"]) for row in rows]
        return found


VALUE = st.integers(1, 2**31 - 1)
RUN_VALUE = st.integers(1, RUN_VALUE_END) | VALUE
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("passed"), st.integers(0, 3), st.integers(0, 2**31) | st.integers(-5, 2**40)),
        st.tuples(st.just("run"), st.integers(0, 3), st.lists(VALUE, min_size=2, max_size=70)),
        st.tuples(st.just("run"), st.integers(0, 3), st.builds(lambda value, count: [value] * count, RUN_VALUE, st.integers(2, 1_200))),
        st.tuples(st.just("waits"), st.integers(0, 2), st.integers(0, 2**40)),
        st.tuples(st.just("back"), st.integers(0, 3), st.integers(-(2**40), -1)),
        st.tuples(st.just("remote"), st.integers(0, 3), st.tuples(st.integers(-(2**50), 2**58), st.sampled_from([REMOTE, SKIPPED]))),
        st.tuples(st.just("time"), st.integers(1, 5_000), st.none()),
        st.tuples(st.just("bound"), st.integers(0, 3), st.none()),
        st.tuples(st.just("flush"), st.none(), st.none()),
    ),
    max_size=60,
)


def play(notes: Notes, steps: list[tuple[Any, Any, Any]]) -> None:
    """Apply the steps to the meter."""
    meter = notes.meter
    for what, at, value in steps:
        group = notes.groups[at] if what not in ("time", "flush") else notes.groups[0]
        match what:
            case "passed":
                meter.passed(group, value, notes.now_ms, CONNECTION, API)
                notes.expects(group, [value])
            case "run":
                alike = value.count(value[0]) == len(value)
                if alike and value[0] < RUN_VALUE_END:
                    meter.passed_alike(group, value[0], len(value), notes.now_ms, CONNECTION, API)
                else:
                    meter.passed_run(group, value, notes.now_ms, CONNECTION, API)
                notes.expects(group, value)
            case "waits":
                meter.record(group, value, 7, 7, notes.now_ms, CONNECTION, API)
                notes.expects(group, [value], 7)
            case "back":
                meter.record_unchecked(group, value, notes.now_ms, CONNECTION, API, UNRECORD)
                notes.expects(group, [value], 0, UNRECORD)
            case "remote":
                amount, kind = value
                meter.remote(group, 5, amount, 2 * amount, notes.now_ms, kind)
                notes.expected.append((group.tags["client-id"], notes.now_ms, amount, 0, kind))
            case "time":
                notes.now_ms += at
            case "bound":
                group.update_bound(group.bound + 1.0)
            case _:
                meter.flush()


@settings(deadline=None)
@given(steps=STEPS, filled=st.sampled_from([0, BATCH_WORDS - 40, BATCH_WORDS - 2, BATCH_WORDS - 1]), traces=st.booleans())
def test_everything_noted_is_read_in_order(steps: list[tuple[Any, Any, Any]], filled: int, traces: bool) -> None:
    """All recorded decisions are read in order, whatever their values and wherever the buffer fills up."""
    notes = Notes(TracingMeter if traces else Meter)
    for _ in range(filled):
        notes.meter.record_unchecked(notes.groups[0], 1, notes.now_ms, CONNECTION, API)
        notes.expected.append(("a", notes.now_ms, 1, 0, 1))
    play(notes, steps)
    assert notes.meter.next_seq == len(notes.expected)
    notes.meter.flush()
    assert notes.read() == notes.expected


@settings(deadline=None)
@given(steps=STEPS)
def test_a_bound_is_reported_before_its_first_decision(steps: list[tuple[Any, Any, Any]]) -> None:
    """The last reported bound of a group up to a decision is the bound of that decision."""
    notes = Notes()
    bounds: list[float] = []
    for step in steps:
        before = len(notes.expected)
        play(notes, [step])
        by_name = {group.tags["client-id"]: group.bound for group in notes.groups}
        bounds += [by_name[row[0]] for row in notes.expected[before:]]
    notes.meter.flush()
    refs = {fact["group"]["name"]: fact["group"]["group_ref"] for batch in notes.batches for fact in batch.facts if "group" in fact}
    reported = [fact["bound"] for batch in notes.batches for fact in batch.facts if "bound" in fact]
    for seq, (row, bound) in enumerate(zip(notes.expected, bounds, strict=True)):
        in_force = [fact["bound"] for fact in reported if fact["group_ref"] == refs[row[0]] and fact["from_seq"] <= seq]
        assert in_force[-1] == bound


@settings(deadline=None)
@given(steps=STEPS)
def test_decisions_are_counted_where_they_lie(steps: list[tuple[Any, Any, Any]]) -> None:
    """The mapped buffer of a process that ends holds the exact number of decisions."""
    path = Path("/dev/shm") / f"sluice-test-noted-{id(steps)}"  # noqa: S108 - where the proxy's buffer is
    notes = Notes(buffer=DecisionBuffer(path))
    try:
        play(notes, steps)
        left = read_abandoned(path)
    finally:
        path.unlink()
    assert left is not None
    assert left.decisions == len(notes.expected)


def test_what_the_sensor_held_before_a_run_is_reported_after_a_loss() -> None:
    """After a gap a group is described with the samples that it held before its next run."""
    notes = Notes(takes=False)
    group = notes.groups[0]
    group.record(400, notes.now_ms)
    notes.meter.passed(group, 400, notes.now_ms, CONNECTION, API)
    notes.meter.flush()
    notes.takes = True
    assert group.record_within(600, notes.now_ms)
    notes.meter.passed_run(group, [100, 200, 300], notes.now_ms, CONNECTION, API)
    notes.meter.flush()
    facts = notes.batches[-1].facts
    assert next(fact["gap"] for fact in facts if "gap" in fact) == {"from_seq": 0, "n": 1, "reason": "queue_full"}
    (ring,) = [fact["ring"] for fact in facts if "ring" in fact]
    assert math.fsum(held for _, _, held in ring["samples"]) == 400


def test_after_a_loss_no_client_takes_the_short_way_before_it_is_described() -> None:
    """After a loss a group uses the short path only after it has been described again."""
    notes = Notes(takes=False)
    group, other = notes.groups[:2]
    for one in (group, other):
        one.record(400, notes.now_ms)
        notes.meter.passed(one, 400, notes.now_ms, CONNECTION, API)
    assert group.meter_word
    notes.meter.flush()
    other.record(400, notes.now_ms)
    notes.meter.passed(other, 400, notes.now_ms, CONNECTION, API)
    assert other.meter_word
    assert not group.meter_word


def test_more_groups_than_words_can_name_take_records() -> None:
    """Groups beyond `GROUPS_MAX` are recorded as full records."""
    notes = Notes()
    notes.meter._groups = GROUPS_MAX
    group = notes.groups[0]
    notes.meter.passed(group, 5, notes.now_ms, CONNECTION, API)
    notes.meter.passed_run(group, [6, 7], notes.now_ms, CONNECTION, API)
    notes.expects(group, [5, 6, 7])
    notes.meter.flush()
    assert notes.read() == notes.expected
    assert len(notes.batches[0].words) // 8 == 3


def test_a_run_of_equal_values_takes_one_word() -> None:
    """A run of equal values takes one word, and the number of decisions in a batch is bounded."""
    notes = Notes()
    group = notes.groups[0]
    for _ in range(10 * BATCH_WORDS // 1_000):
        notes.meter.passed_alike(group, 9, 1_000, notes.now_ms, CONNECTION, API)
        notes.expects(group, [9] * 1_000)
    notes.meter.flush()
    assert notes.read() == notes.expected
    assert sum(len(batch.words) for batch in notes.batches) // 8 == 10 * BATCH_WORDS // 1_000 + 2 * len(notes.batches)
    assert max(batch.count for batch in notes.batches) <= REPEATED_MAX + BATCH_WORDS
