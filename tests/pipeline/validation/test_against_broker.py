"""`sluice meter validate --against-broker`: the throttle times of brokers that keep the quotas, compared with Sluice's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipeline.file_sets import checked_runs
from pipeline.report.validate_page import draw_verdict
from pipeline.tasks import run_local
from pipeline.validation.against_broker import ALIKE, APART, ESTIMATE, WITHHELD, Compared, compare, quantile
from pipeline.validation.verdict import Verdict
from sluice_cli.meter import meter
from tests.support.metering.metering_directory import write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID

Pair = tuple[str, int | None, int | None, int, int]
"""Kind of answer, group, client, the broker's throttle time and Sluice's."""
RUN = {"run_id": RUN_ID, "proxy_id": PROXY_ID}
SENSOR = {"num_samples": 11, "window_ms": 1_000, "first_seen_ms": 0, "scope": "broker", "node_id": 1, "node": "1"}
GROUPS = [
    {**RUN, "group_ref": 0, "quota_type": "Produce", "tag_client_id": "etl", **SENSOR},
    {**RUN, "group_ref": 1, "quota_type": "Fetch", "tag_client_id": "etl", **SENSOR},
    {**RUN, "group_ref": 2, "quota_type": "Request", "tag_user": "alice", **SENSOR},
]
CLIENTS = [
    {"run_id": RUN_ID, "client_ref": 7, "principal_type": "User", "principal": "bob", "client_id": "odd", "name_form": "plain"},
]


def directory(path: Path, pairs: list[Pair], *, store: str = "forward", **fields: Any) -> Path:
    """Write a metering directory with these throttle times of brokers and of Sluice."""
    names = ("quota_type", "group_ref", "client_ref", "broker_ms", "sluice_ms")
    rows = [{**RUN, "ts_ms": 1_000 + at, **dict(zip(names, pair, strict=True))} for at, pair in enumerate(pairs)]
    tables = {"dim_group": GROUPS, "dim_client": CLIENTS, "comparisons": rows}
    write_file_set(path, tables, 0, -1, 1_000, 2_000, {}, final=True, settings={"store": store}, **fields)
    return path


def compared(path: Path, pairs: list[Pair]) -> list[Compared]:
    place = directory(path, pairs)
    return compare(run_local, place, checked_runs(place))


def validated(path: Path, *arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(meter, ["validate", "--in", str(path), "--against-broker", *arguments])
    return outcome.exit_code, outcome.output


@given(st.lists(st.tuples(st.integers(-5_000, 5_000), st.integers(1, 9)), min_size=1, max_size=40))
def testquantiles_of_counted_values_are_those_of_all_values(rows: list[tuple[int, int]]) -> None:
    """A quantile of values with their numbers is numpy's percentile of all of them."""
    values, numbers = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    every = np.repeat(values, numbers)
    for at in (0.0, 0.5, 0.95, 1.0):
        assert quantile(values, numbers, at) == pytest.approx(np.percentile(every, 100 * at), rel=1e-12, abs=1e-9)


def test_a_group_has_its_figures(tmp_path: Path) -> None:
    """Each group has its verdict, the totals, median, p95 and maximum of the difference, and the number of like answers."""
    [one] = compared(tmp_path, [("Produce", 0, 7, 1_000, 1_090)] * 98 + [("Produce", 0, 7, 0, 40), ("Produce", 0, 7, 5_000, 0)])
    assert (one.group, one.quota_type, one.node) == ("client-id etl", "Produce", "1")
    assert (one.answers, one.both, one.broker_only, one.sluice_only) == (100, 98, 1, 1)
    assert (one.broker_ms, one.sluice_ms) == (98 * 1_000 + 5_000, 98 * 1_090 + 40)
    assert (one.median_ms, one.apart_p95_ms, one.apart_max_ms) == (90.0, 90.0, 5_000)
    assert (one.alike_percent, one.verdict) == (99.0, ALIKE)


@pytest.mark.parametrize(
    ("broker_ms", "sluice_ms", "verdict"),
    [(20_000, 22_222, ALIKE), (20_000, 22_223, APART), (0, 1_000, ALIKE), (0, 1_001, APART), (1_001, 0, APART)],
)
def test_alike_is_a_sample_or_a_tenth(tmp_path: Path, broker_ms: int, sluice_ms: int, verdict: str) -> None:
    """Two throttle times are alike within one sample or a tenth of the longer one, whichever is more."""
    assert [one.verdict for one in compared(tmp_path, [("Produce", 0, None, broker_ms, sluice_ms)])] == [verdict]


def test_nine_answers_in_ten_have_to_be_alike(tmp_path: Path) -> None:
    """A group is alike when at least nine of ten answers are alike."""
    near, far = ("Produce", 0, None, 5_000, 5_000), ("Produce", 0, None, 5_000, 2_000)
    assert [one.verdict for one in compared(tmp_path / "1", [near] * 9 + [far])] == [ALIKE]
    assert [one.verdict for one in compared(tmp_path / "2", [near] * 8 + [far] * 2)] == [APART]


def test_small_differences_that_add_up_are_apart(tmp_path: Path) -> None:
    """A group whose small differences add up to more than a quarter of the sum is apart, although each answer is alike."""
    assert [one.verdict for one in compared(tmp_path / "1", [("Produce", 0, None, 900, 0)] * 2)] == [APART]
    assert [one.verdict for one in compared(tmp_path / "2", [("Produce", 0, None, 1_000, 750)] * 9)] == [ALIKE]
    assert [one.verdict for one in compared(tmp_path / "3", [("Produce", 0, None, 1_000, 749)] * 9)] == [APART]


def test_what_cannot_agree_is_not_judged(tmp_path: Path) -> None:
    """Request time, which a broker measures by its threads, and fetches that a broker withholds are reported without a verdict."""
    found = compared(tmp_path / "1", [("Fetch", 1, None, 9_000, 0)] * 3 + [("Produce", 2, None, 9_000, 10)] * 2)
    assert [(one.quota_type, one.verdict) for one in found] == [("Fetch", WITHHELD), ("Request", ESTIMATE)]


def test_a_throttle_without_a_quota_here_is_reported_by_its_client(tmp_path: Path) -> None:
    """A broker's throttle under a quota that Sluice does not know names the client, and the verdict is apart."""
    [one] = compared(tmp_path, [("Produce", None, 7, 900, 0), ("Produce", None, 7, 900, 0)])
    assert (one.group, one.node, one.answers, one.verdict) == ("no quota here: user bob, client-id odd", "-", 2, APART)


def test_the_command_prints_the_table_and_writes_it(tmp_path: Path) -> None:
    """The comparison is in the text, in verdict.json and in report.html; the exit code is 0 when all groups are alike and 1 when one is
    apart.
    """
    place = directory(tmp_path / "in", [("Produce", 0, 7, 1_000, 1_010)])
    code, text = validated(place, "--out", str(tmp_path / "out"))
    assert code == 0, text
    assert "brokers     1 answer of 1 group that they or Sluice throttled, none of them apart" in text
    assert "client-id etl  Produce     1" in text
    reported = json.loads((tmp_path / "out" / "verdict.json").read_text())["against_broker"]
    assert [(one["group"], one["median_ms"], one["verdict"]) for one in reported] == [("client-id etl", 10.0, ALIKE)]
    assert "Against the brokers" in (tmp_path / "out" / "report.html").read_text()
    code, text = validated(directory(tmp_path / "apart", [("Produce", 0, 7, 5_000, 0)]))
    assert (code, "1 of them apart" in text) == (1, True)
    assert "verdict     differences: " in text
    assert "but the brokers throttle 1 group otherwise" in text


def test_the_verdict_is_what_the_exit_code_is(tmp_path: Path) -> None:
    """With groups apart JSON and page have no exact verdict either."""
    code, text = validated(directory(tmp_path / "apart", [("Produce", 0, 7, 5_000, 0)]), "--format", "json")
    assert (code, json.loads(text)["verdict"]) == (1, "differences")
    for directory_name, pair, said in (("alike", (1_000, 1_000), "exact"), ("other", (5_000, 0), "differences")):
        verdict = Verdict(against_broker=compared(tmp_path / directory_name, [("Produce", 0, 7, *pair)]))
        assert (verdict.as_dict(50)["verdict"], verdict.holds) == (said, said == "exact")
        assert ("the brokers throttle 1 group otherwise" in draw_verdict(verdict, 50)) == (not verdict.holds)


def test_without_the_option_nothing_is_said(tmp_path: Path) -> None:
    """Without --against-broker the verdict is that of the waits alone."""
    outcome = CliRunner().invoke(meter, ["validate", "--in", str(directory(tmp_path, [("Produce", 0, 7, 1_000, 0)]))])
    assert (outcome.exit_code, "brokers" in outcome.output) == (0, False)


def test_nothing_to_compare_is_one_line(tmp_path: Path) -> None:
    """Files without brokers' throttles give one line with the remedy and exit code 2."""
    code, text = validated(directory(tmp_path, [], store="file"))
    assert (code, text.count("\n")) == (2, 1)
    assert 'quotas.store = "forward"' in text


def test_no_client_is_throttled(tmp_path: Path) -> None:
    """Forward-mode files without any throttle are not an error."""
    code, text = validated(directory(tmp_path, []))
    assert (code, "0 answers of 0 groups" in text) == (0, True)


def test_what_could_not_be_written_is_reported(tmp_path: Path) -> None:
    """A comparison table that is incomplete gives exit code 3."""
    code, text = validated(directory(tmp_path, [("Produce", 0, 7, 1_000, 1_000)], dropped_comparisons=3))
    assert (code, "3 answers of brokers were compared and could not be written" in text) == (3, True)
