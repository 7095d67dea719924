"""Workers that share usage write file sets from which every decision can be replayed and compared."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metering_format.event_kinds import CHARGED, REFUSED, REMOTE, SKIPPED
from metering_format.tables import SHARED_COLUMNS, TABLES
from pipeline.errors import IncompleteError
from pipeline.manifest import file_sha256, find_manifests
from pipeline.recommend.work import demands_of, plan_demand
from pipeline.recommend.work import do as measure
from pipeline.replay.findings import Kind
from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.meter.meter import BucketStep
from proxy.shared_usage.segment import Segment
from proxy.workers.asked_bucket import Buckets
from proxy.workers.messaging.questions import BucketOf, UseBuckets
from sluice_cli.meter import with_writers
from tests.support.memory.shared_workers import NUM_SAMPLES, WINDOW_MS
from tests.support.metering.metering_workers import BOUNDS, Clock, MeteringWorker, Step, play
from tests.support.metering.metering_writer_fixture import WALL_MS, MeteringWriterFixture

PAUSES_MS = st.sampled_from([0, 0, 0, 1, 5, 9, 40, 300, 1_500, 15_000])
KINDS = st.sampled_from(["record"] * 12 + ["unchecked", "back", "publish", "expire", "rotate"])
STEPS = st.lists(st.builds(Step, st.integers(0, 2), KINDS, st.integers(0, 2), st.integers(1, 9_000), PAUSES_MS), min_size=20, max_size=120)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, level=st.sampled_from(["packed", "packed", "trace"]))
def test_what_workers_write_is_accepted(tmp_path_factory: pytest.TempPathFactory, steps: list[Step], level: str) -> None:
    """Whatever the workers record, take back, publish, forget and rotate, every wait is exact and their records of each other agree."""
    directory = tmp_path_factory.mktemp("metering")
    play(directory, steps, 3, level=level)
    verdict = validate(directory)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []
    assert verdict.shared is not None
    assert verdict.shared.lag_ms_max <= 20


def test_usage_that_is_skipped_twice_from_the_same_total_is_no_break(tmp_path: Path) -> None:
    """A worker that takes all its usage back and uses some again passes the same total twice, and others may skip both."""
    steps = [
        *(Step(2, "record", 0, 868, 0), Step(1, "record", 0, 1_111, 15_000), Step(2, "back", 0, 251, 0), Step(1, "record", 0, 123, 15_000)),
        *(Step(2, "record", 0, 381, 0), Step(1, "record", 2, 408, 15_000), Step(1, "record", 0, 5_748, 0)),
    ]
    play(tmp_path, steps, 3)
    assert validate(tmp_path).kinds() == {}


@pytest.mark.parametrize("level", ["packed", "trace"])
def test_a_group_that_is_forgotten_and_made_again_in_one_millisecond_goes_on(tmp_path: Path, level: str) -> None:
    """A group that is forgotten and created again within a millisecond continues its published total, and the verdict is exact."""
    steps = [Step(0, "record", 0, 7435, 0), Step(0, "expire", 0, 80, 0), Step(0, "record", 0, 90, 0), Step(2, "record", 0, 6227, 1)]
    play(tmp_path, steps, 3, level=level)
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))


def test_usage_that_is_older_than_all_samples_is_not_missed(tmp_path: Path) -> None:
    """A worker that starts after a row with old usage went to another group knows nothing of that usage, and the verdict is exact."""
    steps = [Step(2, "record", 2, 3378, 0), Step(2, "expire", 2, 369, 0), Step(0, "record", 1, 2375, 15_000), Step(0, "record", 2, 4690, 0)]
    play(tmp_path, steps, 3)
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))


def busy(directory: Path, level: str = "packed") -> Path:
    """Let two workers use one group alternately for some seconds; each of them knows only half of the rate by itself."""
    play(directory, [Step(at % 2, "record", 0, 700 + 13 * at, 40) for at in range(150)], level=level)
    return directory


def test_each_worker_counts_its_own_usage(tmp_path: Path) -> None:
    """A manifest counts the decisions and units that its worker recorded itself, without the records of others."""
    busy(tmp_path)
    manifests = find_manifests(tmp_path)
    assert [manifest.schema for manifest in manifests] == [2, 2]
    counts = [manifest.counts["Produce"] for manifest in manifests]
    assert [count.decisions for count in counts] == [75, 75]
    assert [count.units for count in counts] == [sum(700 + 13 * at for at in range(number, 150, 2)) for number in (0, 1)]
    shared = validate(tmp_path).shared
    assert shared is not None
    assert shared.remote_units >= sum(count.units for count in counts) - 2 * 3_000


def test_a_demand_is_that_of_one_worker(tmp_path: Path) -> None:
    """A recommendation adds up what each worker recorded itself, so no usage counts twice."""
    busy(tmp_path)
    demands = demands_of(measure(work) for work in plan_demand(tmp_path))
    used = {group.proxy_id: sum(int(units.sum()) for _, units in demand.parts) for group, demand in demands.items()}
    assert used == {f"edge-{number}": sum(700 + 13 * at for at in range(number, 150, 2)) for number in (0, 1)}


@pytest.mark.parametrize("mode", ["open", "regroup", "closed"])
@pytest.mark.parametrize("level", ["packed", "trace"])
def test_a_what_if_counts_what_each_worker_recorded(tmp_path: Path, mode: str, level: str) -> None:
    """In a what-if the usage of the other worker fills the samples without being a decision, and under the recorded bound the waits are
    the recorded ones.
    """
    busy(tmp_path / "in", level)
    (tmp_path / "q.toml").write_text(f'[[quota]]\nclient-id = "etl"\nproducer_byte_rate = {BOUNDS[0]}\n')
    asked = ["whatif", "--in", str(tmp_path / "in"), "--quotas", str(tmp_path / "q.toml"), "--mode", mode, "--format", "json"]
    result = CliRunner().invoke(with_writers(), asked)
    groups = {row["proxy_id"]: row for row in json.loads(result.stdout)["scenarios"][0]["groups"]}
    for manifest in find_manifests(tmp_path / "in"):
        row, count = groups[manifest.proxy_id], manifest.counts["Produce"]
        assert (row["decisions"], row["units"], row["throttled_today"]) == (count.decisions, count.units, count.throttled)
        if mode != "closed":
            assert (row["throttled"], row["wait_ms"]) == (count.throttled, count.throttle_ms)
        else:
            assert 0 < row["sent_percent"] <= 100


def test_a_worker_that_is_started_again_goes_on(tmp_path: Path) -> None:
    """A restarted worker takes over the usage of its predecessor, other workers see one total, and the verdict is exact."""
    segment, clock = Segment.create(2, 16, NUM_SAMPLES, WINDOW_MS), Clock()
    first, other = (MeteringWorker(tmp_path, segment, number, clock) for number in (0, 1))
    workers = [first, other]
    for at in range(120):
        clock.now_ms += 10
        for worker in workers:
            worker.usage.publish_all(clock.now_ms)
        if at == 60:
            first.stop()
            workers = [MeteringWorker(tmp_path, segment, 0, clock, life=1), other]
        workers[at % 2].take(Step(at % 2, "record", 0, 900 + at, 0))
    for worker in workers:
        worker.stop()
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 50, explain=True))
    assert len(verdict.findings) == 3
    assert verdict.incomplete == []


def test_a_worker_without_files_is_missed(tmp_path: Path) -> None:
    """A worker without any file set makes the verdict incomplete."""
    busy(tmp_path)
    for path in tmp_path.rglob("proxy=edge-1"):
        path.rename(tmp_path / f"gone-{path.parent.parent.name}")
    verdict = validate(tmp_path)
    assert verdict.incomplete == ["worker 1 of those that share usage is in no file set"]


# --- changed records are found

Rows = list[dict[str, Any]]


def change(directory: Path, alter: Callable[[Rows], None], *, proxy: str = "edge-0") -> None:
    """Change the `samples` rows of one worker, and adapt the manifest."""
    path = next(directory.glob(f"manifests/schema=2/proxy={proxy}/**/*.json"))
    manifest = json.loads(path.read_bytes())
    entry = next(entry for entry in manifest["files"] if entry["table"] == "samples")
    place = directory / entry["path"]
    rows = pq.read_table(place, partitioning=None).to_pylist()
    alter(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES["samples"]), place)
    entry |= {"sha256": file_sha256(place), "bytes": place.stat().st_size}
    path.write_text(json.dumps(manifest))


def row_with(rows: Rows, number: int) -> dict[str, Any]:
    """Return a row in the middle with at least this many records of other workers."""
    return [row for row in rows if row["remote_n"] >= number][2]


def drop(rows: Rows) -> None:
    """Remove the second record."""
    row = row_with(rows, 2)
    at = row["remote_pos"][1]
    row["remote_n"] -= 1
    row["remote_sum"] -= row["val"][at]
    row["sum"] -= row["val"][at]
    row["n"] -= 1
    del row["val"][at], row["dt_ms"][at], row["remote_total"][1], row["remote_source"][1], row["remote_pos"][1]
    row["unchecked_pos"] = [place - (place > at) for place in row["unchecked_pos"] if place != at]
    row["remote_pos"] = [place - (place > at) for place in row["remote_pos"]]
    row["thr_pos"] = [place - (place > at) for place in row["thr_pos"]]


def double(rows: Rows) -> None:
    """Replace the second record by a copy of the first."""
    row = row_with(rows, 2)
    first, second = row["remote_pos"][:2]
    difference = row["val"][first] - row["val"][second]
    row["val"][second] = row["val"][first]
    row["remote_total"][1] = row["remote_total"][0]
    row["sum"] += difference
    row["remote_sum"] += difference


def change_amount(rows: Rows) -> None:
    """Add one unit to a record."""
    row = row_with(rows, 1)
    row["val"][row["remote_pos"][0]] += 1
    row["sum"] += 1
    row["remote_sum"] += 1


def change_total(rows: Rows) -> None:
    """Add one to the total of a record."""
    row_with(rows, 1)["remote_total"][0] += 1


def change_source(rows: Rows) -> None:
    """Change the worker of a record."""
    row_with(rows, 1)["remote_source"][0] = "7"


def misplace(rows: Rows) -> None:
    """Mark a record of this worker as one of another."""
    row = row_with(rows, 1)
    row["remote_pos"][0] += 1 if row["remote_pos"][0] + 1 < row["n"] else -1


def point_beyond(rows: Rows) -> None:
    """Give a record a position that does not exist."""
    row_with(rows, 1)["remote_pos"][-1] = 10_000


def miscount(rows: Rows) -> None:
    """Lower a row's count of other workers' records."""
    row_with(rows, 1)["remote_sum"] -= 1


@pytest.mark.parametrize(
    "alter", [drop, double, change_amount, change_total, change_source, misplace, point_beyond, miscount], ids=lambda alter: alter.__name__
)
def test_what_was_changed_is_found(tmp_path: Path, alter: Callable[[Rows], None]) -> None:
    """A record that is missing, duplicate or miscounted, or has another amount, total, worker or position, is found."""
    change(busy(tmp_path), alter)
    kinds = validate(tmp_path).kinds()
    assert kinds
    if alter is not miscount:
        assert Kind.SHARED in kinds


def drop_last(rows: Rows) -> None:
    """Remove the last record; no later record contradicts that."""
    row = max((row for row in rows if row["remote_n"]), key=lambda row: row["last_seq"])
    at = row["remote_pos"][-1]
    row["remote_n"] -= 1
    row["remote_sum"] -= row["val"][at]
    row["sum"] -= row["val"][at]
    row["n"] -= 1
    del row["val"][at], row["dt_ms"][at]
    for name in ("remote_total", "remote_source", "remote_pos"):
        row[name] = row[name][:-1]
    for name in ("unchecked_pos", "thr_pos"):
        row[name] = [place - (place > at) for place in row[name] if place != at]


def merge_two(rows: Rows) -> None:
    """Add the amount of one record to another one, so that the totals stay the same."""
    row = row_with(rows, 2)
    first, second = row["remote_pos"][:2]
    row["val"][second] += row["val"][first]
    row["val"][first] = 0
    row["remote_total"][0] -= row["val"][second] - (row["remote_total"][1] - row["remote_total"][0])


def double_row(rows: Rows) -> None:
    """Duplicate a whole row."""
    rows.append(dict(row_with(rows, 1)))


@pytest.mark.parametrize("alter", [drop_last, double_row], ids=lambda alter: alter.__name__)
def test_what_no_later_record_contradicts_is_found(tmp_path: Path, alter: Callable[[Rows], None]) -> None:
    """A missing last record and a duplicate row are found by numbers and sums."""
    change(busy(tmp_path), alter)
    assert validate(tmp_path).kinds()


def test_usage_that_was_known_later_shows_in_the_lag(tmp_path: Path) -> None:
    """An amount that moves to the next record counts as usage that became known later, and the verdict reports the lag."""
    busy(tmp_path)
    before = validate(tmp_path).shared
    change(tmp_path, merge_two)
    after = validate(tmp_path).shared
    assert before is not None
    assert after is not None
    assert before.lag_ms_max <= 20 < after.lag_ms_max


def in_parts(directory: Path) -> list[Path]:
    """Let two workers use one group and write several file sets; return the manifests of the first worker in order."""
    play(directory, [Step(at % 2, "rotate" if at % 40 < 2 else "record", 0, 700 + at, 40) for at in range(200)])
    found = directory.glob("manifests/schema=2/proxy=edge-0/**/*.json")
    manifests = sorted(found, key=lambda path: json.loads(path.read_bytes())["first_seq"])
    assert len(manifests) > 3
    assert validate(directory).kinds() == {}
    return manifests


@pytest.mark.parametrize("at", [0, 1, -1], ids=["first", "one in the middle", "last"])
def test_a_file_set_of_one_worker_that_is_gone_is_named(tmp_path: Path, at: int) -> None:
    """When a file set of one worker is missing, the verdict is incomplete and names the run, and nothing else diverges."""
    manifest = in_parts(tmp_path)[at]
    run_id = json.loads(manifest.read_bytes())["run_id"]
    for entry in json.loads(manifest.read_bytes())["files"]:
        (tmp_path / entry["path"]).unlink()
    manifest.unlink()
    verdict = validate(tmp_path)
    assert any(run_id in line for line in verdict.incomplete), verdict.incomplete
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))


def test_a_file_of_one_worker_that_is_gone_is_named(tmp_path: Path) -> None:
    """A missing samples file of one worker ends the validation with its name."""
    manifest = json.loads(in_parts(tmp_path)[1].read_bytes())
    path = next(entry["path"] for entry in manifest["files"] if entry["table"] == "samples")
    (tmp_path / path).unlink()
    with pytest.raises(IncompleteError, match=path):
        validate(tmp_path)


def test_groups_that_are_read_in_parts_are_judged_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that is read some groups at a time has the same counts and findings."""
    dice = random.Random(1)
    play(tmp_path, [Step(at % 3, "record", dice.randrange(3), 500 + at, dice.choice((0, 10, 90))) for at in range(300)], 3)
    change(tmp_path, change_amount)
    at_once = validate(tmp_path).as_dict(20)
    assert at_once["kinds"]
    monkeypatch.setattr("pipeline.validation.workers.EVENTS_AT_ONCE", 50)
    assert validate(tmp_path).as_dict(20) == at_once


def test_usage_without_a_source_is_found(tmp_path: Path) -> None:
    """Totals of a worker that are consistent but higher than what that worker recorded are found."""

    def raise_all(rows: Rows) -> None:
        first = min((row for row in rows if row["remote_n"]), key=lambda row: row["first_seq"])
        first["val"][first["remote_pos"][0]] += 5_000
        for row in rows:
            row["remote_total"] = [total + 5_000 for total in row["remote_total"]]

    change(busy(tmp_path), raise_all)
    assert Kind.SHARED in validate(tmp_path).kinds()


def test_usage_that_was_not_known_in_time_is_found(tmp_path: Path) -> None:
    """A record that a worker does not publish for two seconds, so that another one decides without it, is found."""
    segment, clock = Segment.create(2, 16, NUM_SAMPLES, WINDOW_MS), Clock()
    silent, other = (MeteringWorker(tmp_path, segment, number, clock) for number in (0, 1))
    for worker, after_ms in ((other, 0), (silent, 100), (silent, 1), (other, 2_000), (silent, 500), (other, 10)):
        clock.now_ms += after_ms
        worker.take(Step(0, "record", 0, 100, 0))
    silent.stop()
    other.stop()
    verdict = validate(tmp_path)
    assert verdict.kinds() == {Kind.STALE: 1}
    assert verdict.shared is not None
    assert verdict.shared.lag_ms_max == 2_000
    assert verdict.first()[0][1].what == "usage of worker 0 behind a decision of worker 1"


def test_a_trace_says_of_each_record_whose_it_is(tmp_path: Path) -> None:
    """Rows of `events` have the worker and its total, and a group that begins to count is recorded at every level."""
    busy(tmp_path, "trace")
    assert validate(tmp_path).kinds() == {}
    place = next(tmp_path.glob("events/schema=2/proxy=edge-0/**/*.parquet"))
    rows = pq.read_table(place, partitioning=None).to_pylist()
    remote = [row for row in rows if row["kind"] == REMOTE]
    assert remote
    assert {row["source"] for row in remote} == {"1"}
    assert {row["assumed"] for row in remote} == {0.0}
    assert [row["source_total"] for row in remote] == [sum(row["value"] for row in remote[: at + 1]) for at in range(len(remote))]
    assert {row["source"] for row in rows if row["kind"] not in (REMOTE, SKIPPED)} == {None}
    begun = [row for row in rows if row["kind"] == SKIPPED]
    assert [(row["source"], row["value"], row["source_total"]) for row in begun] == [("0", 0, 0)]


def test_columns_about_others_are_only_where_usage_is_shared(tmp_path: Path) -> None:
    """Only a run of schema version 2 has the columns about other workers in its samples and events."""
    busy(tmp_path)
    for table in ("samples", "events"):
        for path in tmp_path.glob(f"{table}/**/*.parquet"):
            assert set(SHARED_COLUMNS[table]) <= set(pq.read_schema(path).names)


def test_a_verdict_tells_how_late_usage_was_known(tmp_path: Path) -> None:
    """Text and JSON state the number of workers, their records of each other, the lag, and the highest rate of all together."""
    verdict = validate(busy(tmp_path))
    lines = list(lines_of(verdict, 5, explain=False))
    assert any(line.startswith("workers     2, 1 group, ") for line in lines)
    assert any(line.startswith("lag         ") for line in lines)
    assert any(line.startswith("all workers at most ") for line in lines)
    shared = verdict.as_dict(5)["shared"]
    assert shared["workers"] == 2
    assert shared["highest_ratio"] > 0.5


def take_from_bucket(directory: Path, *, given_more: float = 0.0) -> None:
    """Let two workers take from one bucket alternately through the supervisor; one recorded balance is changed by `more`."""
    segment, clock, buckets = Segment.create(2, 16, NUM_SAMPLES, WINDOW_MS), Clock(), Buckets()
    workers = [MeteringWorker(directory, segment, number, clock) for number in (0, 1)]
    tags, bound = {"user": "", "client-id": "admin"}, 5.0
    groups = [EnforcedMutationGroup(tags, bound, num_samples=NUM_SAMPLES, window_ms=WINDOW_MS) for _ in workers]
    asked = BucketOf(tuple(sorted(tags.items())), bound, NUM_SAMPLES, WINDOW_MS)
    for at, permits in enumerate((40, 30, 9, 1, 4, 2)):
        clock.now_ms += 700
        group, now_ms = groups[at % 2], clock.now_ms
        (group.balance,) = buckets.use(UseBuckets([asked], permits, now_ms, True))
        before, since_ms = group.balance
        kind = REFUSED if group.is_exhausted(now_ms) else CHARGED
        wait_ms = group.record(permits, now_ms)
        noted = before + (given_more if at == 2 else 0.0)
        step = BucketStep(kind, permits, noted, since_ms, group.tokens(now_ms))
        workers[at % 2].meter.mutation(group, step, wait_ms, wait_ms, now_ms, 1, 19 << 16)
    for worker in workers:
        worker.stop()


def test_steps_of_a_bucket_that_workers_share_are_judged(tmp_path: Path) -> None:
    """Each step of a shared bucket is replayed from the balance that the supervisor recorded."""
    take_from_bucket(tmp_path)
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert (verdict.decisions, verdict.unjudged) == (6, 0)
    assert verdict.counts["ControllerMutation"]["throttled"] > 0


def test_a_step_that_found_another_balance_is_found(tmp_path: Path) -> None:
    """A recorded balance of a shared bucket that does not fit the wait and the remaining tokens is found."""
    take_from_bucket(tmp_path, given_more=0.001)
    assert Kind.MATH in validate(tmp_path).kinds()


COMMANDS = ("validate", "whatif", "recommend", "neighbours", "verify-manifests", "inspect", "repair", "forget")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_reads_both_versions(tmp_path: Path, command: str) -> None:
    """Every command reads a directory with runs of workers and a run of a single process."""
    source = busy(tmp_path / "in")
    alone = MeteringWriterFixture(source)
    alone.writer.start()
    alone.play(500, 1)
    for fact in ONE_USAGE:
        alone.meter.add_fact(fact)
    alone.meter.flush()
    assert alone.writer.stop(30)
    assert {manifest.schema for manifest in find_manifests(source)} == {1, 2}
    (tmp_path / "q.toml").write_text('[[quota]]\nclient-id = "etl"\nproducer_byte_rate = 20000\n')
    arguments = {
        "whatif": ["--in", str(source), "--quotas", str(tmp_path / "q.toml")],
        "forget": [str(source), "--user", "orders"],
        "inspect": [str(next(source.glob("manifests/schema=2/**/*.json")))],
    }
    named = [str(source)] if command in ("verify-manifests", "repair") else ["--in", str(source)]
    result = CliRunner().invoke(with_writers(), [command, *arguments.get(command, named)])
    assert result.exit_code == 0, result.output


CLIENT = {"client_ref": 0, "principal_type": "User", "principal": "orders", "client_id": "etl", "name_form": "plain"}
USED = [0, 1, "1", "default", "produce", *[1] * 12]
ONE_USAGE: list[dict[str, Any]] = [{"client": CLIENT}, {"usage": {"second_ms": WALL_MS, "rows": [USED]}}]
