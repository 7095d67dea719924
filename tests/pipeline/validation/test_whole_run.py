"""The rules over whole runs, file set by file set, and by shares of the groups."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.file_sets import checked_runs
from pipeline.manifest import RunKey
from pipeline.replay.findings import Finding, Findings, Kind
from pipeline.validation.local import validate
from pipeline.validation.rules.long_run import PACED_WINDOW, ThrottleWindow
from pipeline.validation.rules.whole_run.balances import Breaks
from pipeline.validation.rules.whole_run.rates import EVIDENCE_MAX, RunRates
from pipeline.validation.run_verdicts import judge_run
from pipeline.validation.verdict import Verdict, add_run
from pipeline.validation.whole_run import JudgedFileSet, WholeRun, shares_of
from tests.pipeline.support.closed_loop import closed_loop
from tests.pipeline.validation.test_buckets import longer
from tests.pipeline.validation.test_long_run import metered
from tests.pipeline.validation.test_validation import batches, missed, sensors
from tests.support.metering.metering_buckets import Buckets, write_buckets
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_paced import Request, admitted, write_paced

BOUND = 100_000.0


def windows(folder: Path) -> Path:
    return write_directory(folder, batches(), sensors(), mutate=missed)


def steps(folder: Path) -> Path:
    """Write buckets with a wrong wait, and a balance that a later file set does not go on with."""
    buckets = Buckets([5.0, 0.3, 2.0])

    def play(its: Buckets) -> None:
        its.play(200, random.Random(its.seq))

    return write_buckets(folder, buckets, [play] * 4, longer)


def too_fast(folder: Path) -> Path:
    return metered(folder, list(closed_loop(4, 1_000, BOUND, 240, heeds=False, gap_ms=20)), 4, file_sets=3)


def too_fast_paced(folder: Path) -> Path:
    """Write three paced groups, two of which pass without a check, the last one more than its bound."""
    on_time = admitted([(1_000 * at, 50_000) for at in range(240)], BOUND)
    early = [Request(one.ts_ms, 25_000 * at, checked=False, group=at) for one in on_time for at in (1, 2)]
    requests = sorted([*on_time, *early], key=lambda one: one.ts_ms)
    return write_paced(folder, [requests[:300], requests[300:500], requests[500:]], {0: BOUND, 1: BOUND, 2: BOUND / 4}, paced=[0, 1, 2])


@pytest.mark.parametrize("write", [windows, steps, too_fast, too_fast_paced])
@pytest.mark.parametrize("number", [1, 2, 5, 40])
def test_shares_of_the_groups_add_up(tmp_path: Path, write: Callable[[Path], Path], number: int) -> None:
    """The results of all shares of a run's groups, each from its own rows of JSON, add up to the verdict on the run."""
    directory = write(tmp_path)
    whole, parts = validate(directory), Verdict()
    assert whole.violations
    for key, runs in of_shares(directory, number):
        for run in runs.values():
            add_run(parts, key, run.result())
    parts.manifests, parts.incomplete, parts.dropped = whole.manifests, whole.incomplete, whole.dropped
    assert parts.as_dict(50) == whole.as_dict(50)


def of_shares(directory: Path, number: int) -> Iterator[tuple[RunKey, dict[int, WholeRun]]]:
    for key, file_sets in checked_runs(directory).items():
        breaks, runs = Breaks(), dict[int, WholeRun]()
        for position, (file_set, verdict) in enumerate(judge_run(file_sets)):
            judged = JudgedFileSet(position, breaks.before(file_set.manifest), file_set.manifest, verdict)
            for share, part in shares_of(judged, number):
                sent = msgspec.json.decode(msgspec.json.encode(part), type=JudgedFileSet)
                runs.setdefault(share, WholeRun()).add(sent)
        yield key, runs


def test_a_part_of_a_run_is_judged_as_in_the_whole_run(tmp_path: Path) -> None:
    """A part of a run, after the file sets that can affect it, gets the verdicts that it has in the run."""
    [file_sets] = checked_runs(windows(tmp_path)).values()
    whole = [verdict for _, verdict in judge_run(file_sets)]
    for begin in range(len(file_sets)):
        assert [verdict for _, verdict in judge_run(file_sets, begin)] == whole[begin:]


def test_the_evidence_of_a_long_run_is_limited() -> None:
    """A rate over hundreds of file sets has the first ones as evidence, and the number of the others."""
    rates = RunRates()
    for at in range(300):
        begin_ms = 60_000 * at
        rates.add(at, {7: ThrottleWindow(begin_ms, begin_ms + 59_000, at, 60 * 2 * BOUND, 1_000, BOUND, 25.0, 1, BOUND * 11)})
    found, [finding] = rates.result()
    assert (found.groups, finding.kind, finding.group_ref) == (1, Kind.RATE, 7)
    assert len(finding.evidence) == EVIDENCE_MAX + 1
    assert finding.evidence[-1] == f"and {300 - EVIDENCE_MAX} file sets more"


@st.composite
def run_of_groups(draw: st.DrawFn) -> list[dict[int, ThrottleWindow]]:
    """The windows of three groups in each file set of a run. Some are paced, now and then or always, and some are missing."""
    now_ms, file_sets = 0, []
    for _ in range(draw(st.integers(1, 30))):
        now_ms += draw(st.sampled_from([0, 60_000, 10**7]))
        windows = {}
        for ref in draw(st.sets(st.integers(0, 2))):
            to_ms = now_ms + draw(st.integers(0, 90_000))
            units, bound = draw(st.floats(0, 1e9)), draw(st.sampled_from([BOUND, BOUND / 3]))
            figures = (now_ms, to_ms, now_ms, units, 3, bound, 25.0, draw(st.integers(0, 2)), draw(st.floats(0, 1e6)))
            windows[ref] = ThrottleWindow(*figures, is_paced=ref == 0 or draw(st.booleans()))
        file_sets.append(windows)
        now_ms += 90_000
    return file_sets


@given(run_of_groups())
def test_the_rates_of_paced_groups_are_added_up_alike_at_once_and_one_by_one(run: list[dict[int, ThrottleWindow]]) -> None:
    """Paced windows of all groups of a file set, in an array, give the rates and divergences that those of each group give."""
    one_by_one, at_once = RunRates(), RunRates()
    for at, windows in enumerate(run):
        one_by_one.add(at, windows)
        others = {ref: window for ref, window in windows.items() if not window.is_paced}
        fields = [name for name in PACED_WINDOW.names or () if name != "group_ref"]
        paced = [(ref, *(getattr(one, name) for name in fields)) for ref, one in windows.items() if one.is_paced]
        at_once.add(at, others, np.array(paced, PACED_WINDOW))
    assert at_once.result() == one_by_one.result()
    assert at_once.result() == one_by_one.result()


def test_what_other_checks_find_comes_last() -> None:
    """Of two divergences of a group the earlier one is kept, and at the same decision that of the file set."""
    run = WholeRun()
    for seq in (5, 3):
        run.add_later(Findings({1: finding(seq, "a")}, {Kind.BOUND: 1}), {1: "one"})
    run.add_later(Findings({1: finding(3, "b")}, {Kind.BOUND: 1}), {})
    result = run.result()
    assert [one.what for one in result.findings.first.values()] == ["a"]
    assert (result.findings.counts, result.names) == ({Kind.BOUND: 3}, {1: "one"})


def finding(seq: int, what: str) -> Finding:
    return Finding(Kind.BOUND, 1, seq, None, "", "", what)
