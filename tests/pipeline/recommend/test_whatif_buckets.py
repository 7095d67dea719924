"""Controller mutations under another quota file, compared with a reference loop over token buckets."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from metering_format.event_kinds import CHARGED, OWED, REFUSED, SETTLED
from pipeline.quotas.file import quota_file_of
from pipeline.whatif import forecast
from pipeline.whatif.comparison import changes_of
from pipeline.whatif.outcome import Outcomes, Waits
from pipeline.whatif.work import JOB, outcomes_of, plan_work, run_all
from quota.groups.mutation_group import MutationGroup
from tests.support.metering.metering_buckets import START_MS, Buckets, write_buckets

BOUNDS = [5.0, 0.7]
AS_IT_WAS = "".join(f'[[quota]]\nclient-id = "c{ref}"\ncontroller_mutation_rate = {bound}\n' for ref, bound in enumerate(BOUNDS))
Rows = list[dict[str, Any]]


def clients(tables: dict[str, Rows]) -> None:
    """Return the clients; both client-ids belong to one user."""
    named = {"run_id": tables["dim_group"][0]["run_id"], "principal_type": "User", "principal": "ann", "name_form": "plain"}
    tables["dim_client"] = [{**named, "client_ref": ref, "client_id": f"c{ref}"} for ref in range(len(BOUNDS))]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six connections that wait when throttled, some with old protocol versions, in three file sets."""
    dice = random.Random(3)
    batches = [lambda buckets: buckets.serve(6, 60, dice)] * 3
    return write_buckets(tmp_path_factory.mktemp("served"), Buckets(BOUNDS), batches, clients)


def outcomes(directory: Path, text: str, mode: str) -> Outcomes:
    [found] = outcomes_of(run_all(plan_work(directory, [quota_file_of(text, "test.toml")], mode)), 1)
    return found


def recorded(directory: Path, refs: set[int]) -> Rows:
    rows = [row for path in sorted((directory / "events").rglob("*.parquet")) for row in pq.read_table(path, partitioning=None).to_pylist()]
    return sorted((row for row in rows if row["group_ref"] in refs), key=lambda row: int(row["seq"]))


def oracle(rows: Rows, bound: float) -> Waits:
    """The reference loop: each step through a bucket of `quota` that is full at first."""
    bucket = MutationGroup({}, bound, last_update_ms=START_MS - 100_000)
    counts: dict[int, int] = {}
    for row in rows:
        wait_ms = bucket.record_permissive(row["value"], row["ts_ms"]) if row["kind"] == OWED else bucket.record(row["value"], row["ts_ms"])
        if wait_ms:
            counts[wait_ms] = counts.get(wait_ms, 0) + 1
    lengths = sorted(counts)
    return Waits(lengths, [counts[length] for length in lengths])


@pytest.mark.parametrize("mode", ["open", "regroup", "closed"])
def test_the_same_quotas_give_the_recorded_waits(served: Path, mode: str) -> None:
    """Under the quotas of the recording every mode gives the recorded waits to the millisecond, also across file sets."""
    found = outcomes(served, AS_IT_WAS, mode)
    assert len(found) == 2
    assert all(outcome.waits == outcome.recorded and outcome.recorded.number > 20 for outcome in found.values())
    assert all(outcome.knows_requests and outcome.knows_connections for outcome in found.values())


@pytest.mark.parametrize("mode", ["open", "regroup"])
def test_steps_of_all_kinds_give_the_recorded_waits(tmp_path: Path, mode: str) -> None:
    """The replay reproduces refunds and recorded bound changes of groups that no file names."""

    def changing(buckets: Buckets) -> None:
        buckets.play(200, random.Random(5))
        buckets.change(0, 9.0)
        buckets.play(200, random.Random(6))

    directory = write_buckets(tmp_path / "plain", Buckets(BOUNDS), [lambda buckets: buckets.play(300, random.Random(4))] * 2, clients)
    for outcome in outcomes(directory, AS_IT_WAS, mode).values():
        assert outcome.waits == outcome.recorded
        assert outcome.recorded.number > 30

    def custom(tables: dict[str, Rows]) -> None:
        clients(tables)
        for row in tables["dim_group"]:
            row["tags"] = "tenant=a" if row["group_ref"] else "tenant=b"

    directory = write_buckets(tmp_path / "custom", Buckets(BOUNDS), [changing, changing], custom)
    for outcome in outcomes(directory, AS_IT_WAS, mode).values():
        assert outcome.bound is None
        assert outcome.waits == outcome.recorded


def test_another_bound_gives_the_waits_of_the_plain_loop(served: Path) -> None:
    """In the open loop another bound gives the waits of the reference loop, and a client without a quota does not wait."""
    found = outcomes(served, '[[quota]]\nclient-id = "c0"\ncontroller_mutation_rate = 3.5\n', "open")
    waits = {group.client_id: outcome.waits for group, outcome in found.items()}
    assert waits == {"c0": oracle(recorded(served, {0}), 3.5), "c1": Waits()}
    assert waits["c0"].number > 100


def test_buckets_that_come_together_are_one(served: Path) -> None:
    """Under a quota for the user, two client-ids share one bucket, and its waits equal those of the reference loop."""
    found = outcomes(served, '[[quota]]\nuser = "ann"\ncontroller_mutation_rate = 4\n', "regroup")
    assert [(group.user, outcome.groups, outcome.waits) for group, outcome in found.items()] == [
        ("ann", 2, oracle(recorded(served, {0, 1}), 4.0))
    ]


def test_a_run_whose_begin_is_gone_goes_on_with_its_balance(served: Path, tmp_path: Path) -> None:
    """Without the first file set a bucket begins with its recorded balance, and the waits equal the recorded ones."""
    dice = random.Random(3)
    batches = [lambda buckets: buckets.serve(6, 60, dice)] * 3
    directory = write_buckets(tmp_path, Buckets(BOUNDS), batches, clients)
    sorted((directory / "manifests").rglob("*.json"))[0].unlink()
    for outcome in outcomes(directory, AS_IT_WAS, "open").values():
        assert outcome.waits == outcome.recorded
        assert outcome.recorded.number > 10


def asked(reported: list[tuple[int, int, int]]) -> Any:
    """Return steps of one connection of one bucket: (ms later, permits, kind)."""
    ways = {CHARGED: "strict", REFUSED: "strict", OWED: "permissive", SETTLED: "settled"}

    def batch(buckets: Buckets) -> None:
        for later_ms, permits, kind in reported:
            buckets.now_ms += later_ms
            buckets.step(0, permits, ways[kind])
        assert [row["kind"] for row in buckets.rows] == [kind for _, _, kind in reported]

    return batch


def test_what_is_refused_is_refused_whole_and_not_given_back(tmp_path: Path) -> None:
    """A request of two topics that is refused now waits once, and its recorded refund does not apply."""
    reported = [(0, 8, CHARGED), (0, 9, CHARGED), (0, 3, CHARGED), (40, -12, SETTLED), (1_000, 1, CHARGED)]
    directory = write_buckets(tmp_path, Buckets([5.0]), [asked([(0, 20, CHARGED), (100, *reported[0][1:]), *reported[1:]])], clients)
    [outcome] = outcomes(directory, '[[quota]]\nclient-id = "c0"\ncontroller_mutation_rate = 1\n', "open").values()
    # 11 - 20 = -9, 8.9 s left after 100 ms; the whole request is refused; 1,040 ms later 7.86 s are left
    assert (outcome.waits.lengths, outcome.waits.numbers) == ([7_860, 8_900], [1, 1])


def test_who_is_refused_less_may_have_asked_for_more(tmp_path: Path) -> None:
    """A recorded refusal has the first topic only, and when it passes now, a note says that the request may have been larger."""
    directory = write_buckets(tmp_path, Buckets([1.0]), [asked([(0, 20, CHARGED), (100, 2, REFUSED)])], clients)
    found = outcomes(directory, '[[quota]]\nclient-id = "c0"\ncontroller_mutation_rate = 2\n', "open")
    [outcome] = found.values()
    assert (outcome.recorded.lengths, outcome.waits.lengths) == ([8_900], [])
    assert "first topic only" in changes_of("test", found, "open")[0].note
    [outcome] = outcomes(directory, '[[quota]]\nclient-id = "c0"\ncontroller_mutation_rate = 1\n', "open").values()
    assert outcome.knows_requests


def test_clients_ask_again_for_what_is_refused(served: Path) -> None:
    """In the closed loop half the quota gives about half the mutations, within the bucket's limit, and each wait is longer."""
    found = outcomes(served, AS_IT_WAS.replace("5.0", "2.5").replace("0.7", "0.35"), "closed")
    for outcome in found.values():
        assert outcome.bound is not None
        assert 0.35 * outcome.units_offered < outcome.units_sent <= outcome.bound * (180 + 11) + 3 * 11
        assert outcome.waits.percentile_ms(50) > 1.5 * outcome.recorded.percentile_ms(50)


def test_who_asks_before_setting_quotas_gets_the_same_answer(served: Path) -> None:
    """Quotas given as entities and values have the same result as a quota file."""
    entities: dict[forecast.Entity, dict[str, float]] = {(("client-id", f"c{ref}"),): {"controller_mutation_rate": 2.0} for ref in (0, 1)}
    reported = forecast.forecast_groups(served, entities, (START_MS - 1) / 1_000 - 2e9).groups
    text = AS_IT_WAS.replace("5.0", "2.0").replace("0.7", "2.0")
    expected = outcomes(served, text, "open")
    assert sum(one.throttled for one in reported) == sum(outcome.waits.number for outcome in expected.values()) > 0


def test_on_spark_the_outcomes_are_the_same(spark: Any, served: Path) -> None:
    """A task on Spark has the same result as the local engine."""
    from pipeline.spark.tasks import run_on_spark

    work = plan_work(served, [quota_file_of(AS_IT_WAS, "test.toml")], "open")
    assert outcomes_of(run_on_spark(spark, JOB, work), 1) == outcomes_of(run_all(work), 1)
