"""The validator over whole directories: right ones pass, and every kind of error is found and named."""

import csv
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from metering_format.tables import TABLES
from pipeline.errors import BadInputError, IncompleteError
from pipeline.manifest import file_sha256, find_manifests
from pipeline.parquet.checks import check_columns
from pipeline.replay.findings import Kind
from pipeline.validation.local import validate
from sluice_cli.meter import meter
from tests.support.metering.metering_directory import write_directory, write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID, Event, Sensor
from tests.support.metering.metering_scene import Client, write_scene

START_MS = 1_790_000_000_000


def sensors() -> dict[int, Sensor]:
    made = {ref: Sensor(ref, 20_000.0 * (1 + ref)) for ref in range(3)}
    made[3] = Sensor(3, 5.0, request=True, cap_ms=1_000)
    return made


def batches(seed: int = 1, file_sets: int = 3, events: int = 800) -> list[list[Event]]:
    dice = random.Random(seed)
    now = START_MS
    made = []
    for _ in range(file_sets):
        batch = []
        for _ in range(events):
            now += dice.choice([0, 0, 3, 20, 60, 200])
            group = dice.randrange(4)
            batch.append(Event(group, now, dice.randrange(40_000_000) if group == 3 else dice.randrange(9_000), dice.random() < 0.9))
        made.append(batch)
    return made


def kinds_of(directory: Path) -> dict[str, int]:
    return validate(directory).kinds()


def some_throttled(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return next(row for row in rows if row["thr_ms"] and row["thr_ms"][0] > 0 and row["group_ref"] == 0)


def test_a_verdict_names_what_it_judged(tmp_path: Path) -> None:
    """A file set that the proxy finishes during validation is not in the verdict, and neither is its manifest's hash."""
    source = write_scene(tmp_path, 30, clients=[Client("orders", "checkout", "produce", 40_000.0, 9_000, 45)], file_set_s=20)
    late = max((source / "manifests").rglob("*.json"))
    late.rename(source / "late")
    verdict = validate(source, lambda _stem: (source / "late").rename(late))
    assert (list(verdict.manifests), late.is_file()) == ([str(min((source / "manifests").rglob("*.json")).relative_to(source))], True)


def test_a_run_of_the_sensor_is_exact(tmp_path: Path) -> None:
    """Decisions of several groups and types over three file sets, warm-up included, are replayed without a difference."""
    verdict = validate(write_directory(tmp_path, batches(), sensors()))
    assert (verdict.violations, verdict.incomplete, verdict.decisions, verdict.groups) == (0, [], 2_400, 4)
    assert sum(count["throttled"] for count in verdict.counts.values()) > 100
    assert len(verdict.manifests) == 3


def test_a_changed_bound_is_exact(tmp_path: Path) -> None:
    """After a bound changes in the middle of a run, later decisions are judged by the new one."""
    assert kinds_of(write_directory(tmp_path, batches(), sensors(), bound_changes=[(1, 0, 1_000.0), (2, 0, 1e9)])) == {}


def test_in_observe_nothing_was_applied(tmp_path: Path) -> None:
    """In observe decisions are recomputed, an applied wait is a divergence, and decided waits are reported as not applied."""
    verdict = validate(write_directory(tmp_path / "observe", batches(), sensors(), mode="observe"))
    assert verdict.kinds() == {}
    throttled = {name: sum(count[name] for count in verdict.counts.values()) for name in ("throttled", "throttle_ms")}
    assert verdict.as_dict(0)["would_have_waited"] == {"decisions": throttled["throttled"], "ms": throttled["throttle_ms"]}
    said = CliRunner().invoke(meter, ["validate", "--in", str(tmp_path / "observe")]).output
    assert (
        f"{throttled['throttled']:,} of these would have waited, {throttled['throttle_ms']:,} ms in all; quotas were only observed" in said
    )
    enforced = validate(write_directory(tmp_path / "delay", batches(), sensors()))
    assert enforced.as_dict(0)["would_have_waited"] == {"decisions": 0, "ms": 0}
    assert "would have waited" not in CliRunner().invoke(meter, ["validate", "--in", str(tmp_path / "delay")]).output


def longer(rows: list[dict[str, Any]]) -> None:
    row = some_throttled(rows)
    row["thr_ms"][0] += 1
    row["applied_ms"][0] += 1
    row["throttle_ms_sum"] += 1


def missed(rows: list[dict[str, Any]]) -> None:
    row = some_throttled(rows)
    row["throttle_ms_sum"] -= row["thr_ms"][0]
    row["thr_ms"][0] = row["applied_ms"][0] = 0


def spurious(rows: list[dict[str, Any]]) -> None:
    row = next(row for row in rows if not row["thr_ms"] and 0 not in row["unchecked_pos"])
    row["thr_pos"], row["thr_ms"], row["applied_ms"] = [0], [7], [7]


def over_cap(rows: list[dict[str, Any]]) -> None:
    row = next(row for row in rows if row["group_ref"] == 3 and row["thr_ms"] and max(row["thr_ms"]) == 1_000)
    at = row["thr_ms"].index(1_000)
    row["thr_ms"][at] = row["applied_ms"][at] = 1_001


def one_ulp(rows: list[dict[str, Any]]) -> None:
    rows[5]["max_observed"] *= 1 + 2**-52


def wrong_start(rows: list[dict[str, Any]]) -> None:
    rows[5]["sample_start_ms"] += 1


def one_lost(rows: list[dict[str, Any]]) -> None:
    del rows[7]


def one_twice(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[7])


def one_byte(rows: list[dict[str, Any]]) -> None:
    rows[4]["val"][0] += 1
    rows[4]["sum"] += 1


def back_in_time(rows: list[dict[str, Any]]) -> None:
    row = next(row for row in rows if len(row["dt_ms"]) > 2 and row["dt_ms"][-1] > row["dt_ms"][-2])
    row["dt_ms"][-1], row["dt_ms"][-2] = row["dt_ms"][-2], row["dt_ms"][-1]


def other_bound(rows: list[dict[str, Any]]) -> None:
    rows[3]["bound"] += 1.0


def not_applied(rows: list[dict[str, Any]]) -> None:
    row = some_throttled(rows)
    row["applied_ms"][0] = 0


@pytest.mark.parametrize(
    ("mutate", "kind"),
    [
        (longer, "MATH"),
        (missed, "MISSED"),
        (spurious, "SPURIOUS"),
        (over_cap, "CAP"),
        (one_ulp, "MATH"),
        (wrong_start, "SEGMENT"),
        (one_lost, "GAP"),
        (one_twice, "GAP"),
        (one_byte, "MATH"),
        (back_in_time, "ORDER"),
        (other_bound, "BOUND"),
        (not_applied, "NOT_APPLIED"),
    ],
)
def test_every_mutation_is_found(tmp_path: Path, mutate: Callable[[list[dict[str, Any]]], None], kind: str) -> None:
    """One changed value is found under its kind, with the samples where samples prove it."""
    verdict = validate(write_directory(tmp_path, batches(file_sets=1), sensors(), mutate=mutate))
    assert kind in verdict.kinds()
    provable = {Kind.MATH, Kind.MISSED, Kind.SPURIOUS, Kind.CAP, Kind.SEGMENT}
    assert all(finding.evidence for _, finding in verdict.first() if finding.kind in provable)


def test_a_divergence_says_whose_it_is_and_when(tmp_path: Path) -> None:
    """Each divergence has the group's name and number, the decision's number and its time, in the text as in JSON and on the page."""
    write_directory(tmp_path, batches(), sensors(), mutate=missed)
    reported = CliRunner().invoke(meter, ["validate", "--in", str(tmp_path), "--out", str(tmp_path / "out")]).output
    [finding] = [one for one in validate(tmp_path).as_dict(50)["first_divergences"] if one["group_ref"] == 0]
    assert finding["group"] == "client-id client-0 (Produce)"
    at = datetime.fromtimestamp(finding["ts_ms"] / 1_000, UTC)
    place = f"group 0, client-id client-0 (Produce), seq {finding['seq']} at {at:%Y-%m-%dT%H:%M:%S}.{finding['ts_ms'] % 1_000:03}Z"
    assert place in reported
    assert place in (tmp_path / "out" / "report.html").read_text()


def test_divergences_as_csv(tmp_path: Path) -> None:
    """CSV has a line for the first divergence of each group, equal to JSON's; without a divergence it has the header only."""
    write_directory(tmp_path / "wrong", batches(), sensors(), mutate=missed)
    command = ["validate", "--format", "csv", "--in"]
    outcome = CliRunner().invoke(meter, [*command, str(tmp_path / "wrong")])
    reported = validate(tmp_path / "wrong").as_dict(50)["first_divergences"]
    rows = list(csv.DictReader(outcome.stdout.splitlines()))
    assert (outcome.exit_code, len(rows)) == (1, len(reported))
    assert [row["group"] or None for row in rows] == [one["group"] for one in reported]
    assert all(
        row[name] == str(one[name]) for row, one in zip(rows, reported, strict=True) for name in ("seq", "ts_ms", "kind", "expected")
    )
    write_directory(tmp_path / "right", batches(file_sets=1), sensors())
    outcome = CliRunner().invoke(meter, [*command, str(tmp_path / "right")])
    assert (outcome.exit_code, outcome.stdout.splitlines()) == (0, [",".join(rows[0])])


def test_what_was_applied_in_observe_is_found(tmp_path: Path) -> None:
    """An applied wait in mode observe is a divergence."""

    def applied(rows: list[dict[str, Any]]) -> None:
        row = some_throttled(rows)
        row["applied_ms"][0] = row["applied_ms_sum"] = 5

    assert kinds_of(write_directory(tmp_path, batches(file_sets=1), sensors(), mode="observe", mutate=applied)) == {"NOT_APPLIED": 1}


def rewrite(path: Path, **reported: Any) -> None:
    """Change fields of a manifest."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **reported}))


def change_rows(
    directory: Path, manifest: Path, table: str, change: Callable[[list[dict[str, Any]]], None], *, write_statistics: bool = True
) -> None:
    """Change the rows of one table, and update its size and hash in the manifest."""
    files = json.loads(manifest.read_text())["files"]
    [entry] = [entry for entry in files if entry["table"] == table]
    path = directory / entry["path"]
    rows = pq.read_table(path, partitioning=None).to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES[table]), path, write_statistics=write_statistics)
    entry |= {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    rewrite(manifest, files=files)


@pytest.mark.parametrize("missing", ["Produce", "Request"])
def test_a_type_that_the_manifest_does_not_count_is_found(tmp_path: Path, missing: str) -> None:
    """Decisions of a quota type that is not in the manifest's counts are a divergence."""
    write_directory(tmp_path, batches(file_sets=1), sensors())
    [path] = (tmp_path / "manifests").rglob("*.json")
    counts = json.loads(path.read_text())["counts"]
    rewrite(path, counts={name: count for name, count in counts.items() if name != missing})
    verdict = validate(tmp_path)
    assert verdict.kinds() == {"GAP": 1}
    [(_, finding)] = verdict.first()
    assert finding.what == f"sums of {missing} against the manifest"
    rewrite(path, counts={})
    assert kinds_of(tmp_path) == {"GAP": 2}


def test_states_that_are_missing_are_found(tmp_path: Path) -> None:
    """Decisions without a state of the proxy, or with one from a later decision on, are a divergence."""

    def later(rows: list[dict[str, Any]]) -> None:
        rows[0]["from_seq"] += 1

    write_directory(tmp_path, batches(file_sets=2), sensors())
    _, path = sorted((tmp_path / "manifests").rglob("*.json"))
    change_rows(tmp_path, path, "states", later)
    [(_, finding)] = validate(tmp_path).first()
    assert (finding.kind, finding.seq, finding.recorded) == ("GAP", 800, "only from 801 on")
    rewrite(path, files=[entry for entry in json.loads(path.read_text())["files"] if entry["table"] != "states"])
    [(_, finding)] = validate(tmp_path).first()
    assert (finding.kind, finding.what, finding.expected) == ("GAP", "states of the file", "how the proxy was set from decision 800 on")
    assert "no wait can be judged as applied" in finding.recorded


@pytest.mark.parametrize(
    ("table", "column"), [("samples", "run_id"), ("samples", "proxy_id"), ("dim_group", "proxy_id"), ("dim_bound", "run_id")]
)
@pytest.mark.parametrize("is_reported", [True, False], ids=["footer", "rows"])
def test_rows_of_another_run_are_refused(tmp_path: Path, table: str, column: str, *, is_reported: bool) -> None:
    """A file with rows of another run or proxy is named, although its hash matches the manifest."""

    def of_another(rows: list[dict[str, Any]]) -> None:
        rows[-1][column] += "-other"

    write_directory(tmp_path, batches(file_sets=1), sensors())
    [path] = (tmp_path / "manifests").rglob("*.json")
    change_rows(tmp_path, path, table, of_another, write_statistics=is_reported)
    outcome = CliRunner().invoke(meter, ["validate", "--in", str(tmp_path)])
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (3, "", 1)
    assert f"has rows of {column} " in outcome.stderr
    with pytest.raises(IncompleteError, match=f"has rows of {column}"):
        check_columns(tmp_path, find_manifests(tmp_path))


@pytest.mark.parametrize(
    "edit",
    [
        lambda reported: {"first_ts_ms": reported["first_ts_ms"] - 1},
        lambda reported: {"last_ts_ms": reported["last_ts_ms"] + 1},
        lambda reported: {"dropped_decisions": 1},
    ],
    ids=["first-time", "last-time", "dropped"],
)
def test_a_manifest_that_tells_otherwise_is_found(tmp_path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """A manifest whose first time, last time or number of dropped decisions differs from the rows is a divergence."""
    write_directory(tmp_path, batches(file_sets=2), sensors())
    path = max((tmp_path / "manifests").rglob("*.json"))
    rewrite(path, **edit(json.loads(path.read_text())))
    assert kinds_of(tmp_path) == {"GAP": 1}


@pytest.mark.parametrize("column", ["first_seq", "last_seq"])
def test_numbers_of_rows_that_cannot_be_are_found(tmp_path: Path, column: str) -> None:
    """A row that shares its first or last number with another one is found, and so is a missing first or last number of the file set."""

    def anothers(rows: list[dict[str, Any]]) -> None:
        taken = {row[name] for row in rows for name in ("first_seq", "last_seq")}
        row, shift = next((row, shift) for row in rows for shift in (-1, 1) if row["n"] > 3 and row[column] + shift in taken)
        row[column] += shift

    def inwards(rows: list[dict[str, Any]]) -> None:
        row = min(rows, key=lambda row: row["first_seq"]) if column == "first_seq" else max(rows, key=lambda row: row["last_seq"])
        row[column] += 1 if column == "first_seq" else -1

    for number, mutate in enumerate((anothers, inwards)):
        assert "GAP" in kinds_of(write_directory(tmp_path / str(number), batches(file_sets=1), sensors(), mutate=mutate))


def test_a_last_file_set_that_is_not_the_last_is_reported(tmp_path: Path) -> None:
    """When a file set follows the one that is marked as the last, `validate` and `verify-manifests` end with exit code 3."""
    write_directory(tmp_path, batches(file_sets=2), sensors())
    first, second = sorted((tmp_path / "manifests").rglob("*.json"))
    rewrite(first, final=True)
    line = f"{first.stem} is marked as the last one, but {second.stem} follows"
    assert [(code, line in said) for code, said in both_say(tmp_path)] == [(3, True)] * 2


def test_a_manifest_that_is_there_twice_counts_once(tmp_path: Path) -> None:
    """A copy of a manifest changes nothing; two that differ give one line and exit code 2."""
    write_directory(tmp_path, batches(file_sets=2), sensors())
    path = max((tmp_path / "manifests").rglob("*.json"))
    copy = path.parents[1] / "hour=13" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    assert [code for code, _ in both_say(tmp_path)] == [0, 0]
    assert validate(tmp_path).decisions == 1_600
    rewrite(copy, level="trace")
    assert [(code, "same name" in said, said.count("\n")) for code, said in both_say(tmp_path)] == [(2, True, 1)] * 2


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("mode", "observe"), ("mode", "delayed"), ("scope", "cluster"), ("delay_max_ms", 4_999), ("num_samples", 12)),
        *(("window_ms", 999), ("produce_enabled", False), ("request_enabled", False), ("switches", '[{"mode": "off"}]')),
    ],
)
def test_a_first_state_that_differs_from_the_last_one_is_found(tmp_path: Path, column: str, value: object) -> None:
    """A file set whose first state differs from the last state of the file set before it, in any column, is a divergence."""

    def otherwise(rows: list[dict[str, Any]]) -> None:
        rows[0][column] = value

    write_directory(tmp_path, batches(file_sets=3), sensors())
    change_rows(tmp_path, sorted((tmp_path / "manifests").rglob("*.json"))[1], "states", otherwise)
    verdict = validate(tmp_path)
    assert verdict.kinds()["GAP"] >= 2
    assert any(finding.what == "states of the file" and str(value) in finding.recorded for _, finding in verdict.first())


@pytest.mark.parametrize(("from_seq", "gone", "kinds"), [(700, False, {}), (800, False, {}), (700, True, {"GAP": 1})])
def test_a_change_of_settings_is_in_the_file_set_that_it_came_in(
    tmp_path: Path, from_seq: int, *, gone: bool, kinds: dict[str, int]
) -> None:
    """A recorded change of settings leads to the first state of the next file set; if it is not recorded, that state is a divergence."""
    write_directory(tmp_path, batches(file_sets=2), sensors())
    first, second = sorted((tmp_path / "manifests").rglob("*.json"))
    if not gone:
        change_rows(tmp_path, first, "states", lambda rows: rows.append({**rows[0], "from_seq": from_seq, "delay_max_ms": 1_000}))
    change_rows(tmp_path, second, "states", lambda rows: rows[0].update(delay_max_ms=1_000))
    assert kinds_of(tmp_path) == kinds


@pytest.mark.parametrize("ref", [0, 2])
def test_a_group_that_nothing_is_said_of_is_refused(tmp_path: Path, ref: int) -> None:
    """A file set with decisions of a group that its dim_group does not name is refused."""
    write_directory(tmp_path, batches(file_sets=1), {at: sensor for at, sensor in sensors().items() if at < 3} | {3: Sensor(3, 9_000.0)})
    [path] = (tmp_path / "manifests").rglob("*.json")
    change_rows(tmp_path, path, "dim_group", lambda rows: rows.remove(next(row for row in rows if row["group_ref"] == ref)))
    with pytest.raises(BadInputError, match=f"rows of group {ref}, which dim_group does not name"):
        validate(tmp_path)


def test_a_group_without_a_number_is_refused(tmp_path: Path) -> None:
    """Rows of group -1 are refused with one line."""

    def nobodys(rows: list[dict[str, Any]]) -> None:
        rows[0]["group_ref"] = -1

    write_directory(tmp_path, batches(file_sets=1), sensors(), mutate=nobodys)
    with pytest.raises(BadInputError, match="rows of group -1"):
        validate(tmp_path)


def test_a_missing_file_set_is_incomplete(tmp_path: Path) -> None:
    """A missing file set is named by the numbers of its decisions, and lowers the coverage."""
    write_directory(tmp_path, batches(), sensors())
    manifests = sorted((tmp_path / "manifests").rglob("*.json"))
    manifests[0].unlink()
    verdict = validate(tmp_path)
    assert any("decisions 0 to 799" in line for line in verdict.incomplete)
    assert verdict.coverage_percent < 100


def with_usage_only(directory: Path) -> list[Path]:
    """Write a run whose last two file sets have no decisions; return its manifests in order."""
    write_directory(directory, batches(file_sets=1), sensors())
    [path] = (directory / "manifests").rglob("*.json")
    rewrite(path, final=False)
    at_ms = json.loads(path.read_text())["last_ts_ms"]
    last = write_file_set(directory, {}, 800, 799, at_ms, at_ms, {}, final=False, previous=path.stem)
    write_file_set(directory, {}, 800, 799, at_ms, at_ms, {}, part=1, final=True, previous=last)
    return sorted((directory / "manifests").rglob("*.json"), key=lambda path: path.stem)


def both_say(directory: Path) -> list[tuple[int, str]]:
    """Return exit code and output of `validate` and of `verify-manifests`."""
    commands = (["validate", "--in", str(directory)], ["verify-manifests", str(directory)])
    outcomes = [CliRunner().invoke(meter, command) for command in commands]
    return [(outcome.exit_code, outcome.output) for outcome in outcomes]


def test_a_missing_file_set_without_decisions_is_incomplete(tmp_path: Path) -> None:
    """A missing file set without decisions is named by both commands, which end with exit code 3."""
    paths = with_usage_only(tmp_path)
    assert [code for code, _ in both_say(tmp_path)] == [0, 0]
    paths[1].unlink()
    assert [(code, f"{paths[1].stem}, the file set before {paths[2].stem}" in said) for code, said in both_say(tmp_path)] == [(3, True)] * 2


def test_the_first_file_set_is_missing_unless_retention_removed_it(tmp_path: Path) -> None:
    """A run whose first manifest names a previous one is incomplete, unless the ledger of retention has the run."""
    gone = f"{RUN_ID}-{0:016d}"
    write_file_set(tmp_path, {}, 0, -1, START_MS, START_MS, {}, part=1, final=True, previous=gone)
    assert [(code, f"{gone}, the file set before {gone}.0001" in said) for code, said in both_say(tmp_path)] == [(3, True)] * 2
    (tmp_path / "removed").mkdir()
    ledger = {"kind": "sluice-metering-removed", "proxy_id": PROXY_ID, "runs": [{"run_id": RUN_ID, "last_seq": -1}]}
    (tmp_path / "removed" / f"proxy={PROXY_ID}.json").write_text(json.dumps(ledger))
    assert [code for code, _ in both_say(tmp_path)] == [0, 0]


def test_a_manifest_that_names_none_before_it_is_incomplete(tmp_path: Path) -> None:
    """A manifest that names no previous one, although one exists, makes the verdict incomplete."""
    paths = with_usage_only(tmp_path)
    rewrite(paths[2], previous=None)
    assert validate(tmp_path).incomplete == [f"run {RUN_ID}: {paths[2].stem} names no file set before it, and {paths[1].stem} is there"]


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A missing file of a manifest ends the validation with its name."""
    write_directory(tmp_path, batches(file_sets=1), sensors())
    next((tmp_path / "samples").rglob("*.parquet")).unlink()
    with pytest.raises(IncompleteError, match="is missing"):
        validate(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(schema=4), "schema 4"),
        (lambda manifest: manifest.update(kind="other"), "not a manifest of Sluice"),
        (lambda manifest: manifest.pop("first_seq"), "first_seq"),
        (lambda manifest: manifest.update(level="packedx"), "packedx"),
        (lambda manifest: manifest["files"][0].update(path="../../etc/passwd"), "no table"),
    ],
)
def test_a_strange_manifest_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str) -> None:
    """A manifest with another schema, kind or level, a missing key or a path outside of the directory is refused with one clear line."""
    write_directory(tmp_path, batches(file_sets=1), sensors())
    path = next((tmp_path / "manifests").rglob("*.json"))
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    with pytest.raises(BadInputError, match=message):
        validate(tmp_path)


def test_exit_codes(tmp_path: Path) -> None:
    """The exit code is 0 for an exact run, 1 for divergences, 2 for a missing directory and 3 for one without manifests."""
    run = CliRunner().invoke
    write_directory(tmp_path / "right", batches(), sensors())
    write_directory(tmp_path / "wrong", batches(), sensors(), mutate=missed)
    (tmp_path / "empty").mkdir()
    outcomes = {name: run(meter, ["validate", "--in", str(tmp_path / name)]) for name in ("right", "wrong", "absent", "empty")}
    assert {name: outcome.exit_code for name, outcome in outcomes.items()} == {"right": 0, "wrong": 1, "absent": 2, "empty": 3}
    assert "exact" in outcomes["right"].output
    assert "MISSED" in outcomes["wrong"].output
    assert all(outcomes[name].stderr.count("\n") == 1 for name in ("absent", "empty"))


def change_unread(directory: Path) -> Path:
    """Change a byte that the validation does not read, in a file that it does read; return the file."""
    path = next((directory / "dim_bound").rglob("*.parquet"))
    data = path.read_bytes()
    assert data.count(b"client-id") > 1
    at = data.rindex(b"ARROW:schema") - 1  # in the footer: metadata of the writer that no reader needs
    path.write_bytes(data[:at] + data[at:].replace(b"ARROW:schema", b"ARROW:schemb"))
    return path


@pytest.mark.parametrize("written", [("--out", "OUT"), ("--format", "html")], ids=["out", "html"])
def test_a_verdict_is_written_only_of_the_files_that_manifests_tell_of(tmp_path: Path, written: tuple[str, str]) -> None:
    """Before a verdict is written every file is hashed, and a changed one ends the command with one line."""
    write_directory(tmp_path / "in", batches(file_sets=2), sensors())
    command = ["validate", "--in", str(tmp_path / "in")]
    arguments = [argument.replace("OUT", str(tmp_path / "out")) for argument in written]
    path = change_unread(tmp_path / "in")
    assert CliRunner().invoke(meter, command).exit_code == 0
    outcome = CliRunner().invoke(meter, [*command, *arguments])
    assert (outcome.exit_code, outcome.stdout, outcome.stderr.count("\n")) == (3, "", 1)
    assert f"{path}: its SHA-256 is not the one in manifest" in outcome.stderr
    assert not (tmp_path / "out").exists()


def test_verify_manifests_names_a_changed_file(tmp_path: Path) -> None:
    """`verify-manifests` finds a flipped byte by the SHA-256 and names the file."""
    write_directory(tmp_path, batches(file_sets=1), sensors())
    path = next((tmp_path / "samples").rglob("*.parquet"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    outcome = CliRunner().invoke(meter, ["verify-manifests", str(tmp_path)])
    assert outcome.exit_code == 3
    assert str(path) in outcome.output
