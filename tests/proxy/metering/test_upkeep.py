"""Repair, retention and `forget` of metering files."""

import json
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from pipeline.commands.repair import repair_command as repair_command_of
from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from proxy.enforcement.mode import Mode
from proxy.metering import retention
from proxy.metering.commands.forget import forget_command
from proxy.metering.facts.names import Names
from proxy.metering.forget import FORGOTTEN
from proxy.metering.repair import repair
from proxy.metering.retention import Removed, Retention, apply_retention
from tests.support.frames.kafka_frames import answered, plain, produced
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.verdicts import BOUND, PRODUCE_VERSION, produce_of
from tests.support.metering.metering_directory import write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID
from tests.support.metering.metering_writer_fixture import WALL_MS, MeteringWriterFixture

PROXY = "sluice-1"
repair_command = repair_command_of(repair)


def file_sets(directory: Path, count: int) -> MeteringWriterFixture:
    """Write one run of `count` file sets."""
    proxy = MeteringWriterFixture(directory)
    proxy.writer.start()
    for number in range(count):
        proxy.play(2_000, number)
        proxy.meter.flush()
        proxy.writer.rotate()
    assert proxy.writer.stop(60)
    return proxy


def test_the_oldest_go_first_and_nothing_else_is_missing(tmp_path: Path) -> None:
    """Above `max_bytes` retention removes the oldest file sets, and validation of the others is complete."""
    file_sets(tmp_path, 5)
    before = find_manifests(tmp_path)
    sizes = sum(path.stat().st_size for path in tmp_path.rglob("*.*") if path.suffix in (".parquet", ".json"))
    gone = apply_retention(tmp_path, PROXY, Retention(bytes_max=sizes * 3 // 5)).file_sets
    after = find_manifests(tmp_path)
    assert 0 < gone == len(before) - len(after) < len(before)
    assert [one.first_seq for one in after] == [one.first_seq for one in before[gone:]]
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)
    assert verdict.removed == [f"run {after[0].run_id}: decisions 0 to {before[gone - 1].last_seq} were removed by retention"]
    assert 0 < verdict.unjudged < 2_000


def test_files_that_are_too_old_go(tmp_path: Path) -> None:
    """Above `max_age` retention removes file sets by their last decision."""
    proxy = file_sets(tmp_path, 3)
    assert apply_retention(tmp_path, PROXY, Retention(age_ms_max=10**9, now_ms=proxy.now_ms + WALL_MS)) == Removed()
    file_sets_before = len(find_manifests(tmp_path))
    assert apply_retention(tmp_path, PROXY, Retention(age_ms_max=1, now_ms=proxy.now_ms + WALL_MS + 10)) == Removed(file_sets_before)
    assert list(tmp_path.rglob("*.parquet")) == []


@pytest.mark.parametrize("removals", range(3))
def test_retention_that_was_killed_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removals: int) -> None:
    """After an interrupted retention the files are valid, and the next one completes it and counts each file set once."""
    proxy = file_sets(tmp_path, 4)
    before = find_manifests(tmp_path)
    limits = Retention(age_ms_max=1, now_ms=before[1].last_ts_ms + 2)
    left, remove = [None] * removals, retention.remove

    def remove_some(*paths: Path) -> None:
        for path in paths:
            if not left:
                raise KeyboardInterrupt
            left.pop()
            remove(path)

    monkeypatch.setattr(retention, "remove", remove_some)
    with pytest.raises(KeyboardInterrupt):
        apply_retention(tmp_path, PROXY, limits)
    monkeypatch.undo()
    if not removals:
        verdict = validate(tmp_path)
        assert (verdict.kinds(), verdict.incomplete, verdict.removed) == ({}, [], [])
    assert apply_retention(tmp_path, PROXY, limits) == Removed()
    assert find_manifests(tmp_path) == before[2:]
    named_files = {entry.path for one in before[2:] for entry in one.files}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")} == named_files
    (run,) = json.loads((tmp_path / "removed" / f"proxy={PROXY}.json").read_text())["runs"]
    assert (run["file_sets"], run["last_seq"]) == (2, before[1].last_seq)
    assert proxy.problems == []


def test_a_manifest_that_was_never_finished_is_no_file_set(tmp_path: Path) -> None:
    """Temporary manifests are ignored by readers and by retention."""
    file_sets(tmp_path, 1)
    before = find_manifests(tmp_path)
    for path in list((tmp_path / "manifests").rglob("*.json")):
        path.with_name(f".tmp-{path.name}").write_bytes(path.read_bytes())
        path.with_name(f".tmp-x{path.name}").write_bytes(path.read_bytes()[:100])
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.suffix in (".parquet", ".json") and path.name[0] != ".")
    assert apply_retention(tmp_path, PROXY, Retention(bytes_max=size)) == Removed()
    assert find_manifests(tmp_path) == before
    assert (validate(tmp_path).kinds(), validate(tmp_path).incomplete) == ({}, [])


def test_files_are_for_owner_and_group(tmp_path: Path) -> None:
    """Metering files have mode 0640."""
    file_sets(tmp_path, 1)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*") if path.is_file()}
    assert modes == {0o640}


def test_repair_makes_whole_what_a_kill_left(tmp_path: Path) -> None:
    """Repair converts an open segment, removes temporary files, and finds nothing to do the second time."""
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    proxy.play(3_000, 1)
    proxy.meter.flush()
    while proxy.writer.counts.waiting_bytes:
        pass
    half = tmp_path / "samples" / "schema=1" / f"proxy={PROXY}" / "date=2026-11-21" / ".tmp-x.parquet"
    half.parent.mkdir(parents=True)
    half.write_bytes(b"PAR1")
    done = CliRunner().invoke(repair_command, [str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "1 file set repaired, 0 empty segments and 1 temporary file removed" in done.output
    assert validate(tmp_path).decisions == 3_000
    again = CliRunner().invoke(repair_command, [str(tmp_path)])
    assert again.output.startswith("0 file sets")


@pytest.mark.parametrize("line", [b"[1]\n", b"3\n", b'{"run":3}\n', b'{"run":{"proxy_id":"sluice-1"}}\n', None], ids=str)
def test_repair_leaves_what_is_no_segment_of_ours(tmp_path: Path, line: bytes | None) -> None:
    """Repair reports other content under a segment's name and converts the real segments."""
    proxy = MeteringWriterFixture(tmp_path)
    proxy.writer.start()
    proxy.play(500, 1)
    proxy.meter.flush()
    while proxy.writer.counts.decisions < 500:
        time.sleep(0.001)
    other = tmp_path / "segments" / "0.facts.open"
    if line is None:
        other.mkdir()
    else:
        other.write_bytes(line)
    done = repair(tmp_path)
    assert len(done.manifests) == 1
    assert all("0: " in problem for problem in done.problems)
    assert validate(tmp_path).decisions == 500


@pytest.mark.parametrize("command", [repair_command, forget_command])
def test_a_directory_of_something_else_is_refused(tmp_path: Path, command: Any) -> None:
    """A directory that is no metering directory gives one line and exit code 2."""
    arguments = [str(tmp_path), "--user", "alice"] if command is forget_command else [str(tmp_path)]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert done.output.count("\n") == 1


def named(directory: Path, names: Names) -> MeteredFixture:
    """Write the metering of user ANONYMOUS with client-id etl under a quota."""
    with MeteredFixture(directory, produce=BOUND, mode=Mode.MUTE, names=names) as proxy:
        peer = proxy.connect()
        peer.asks(produce_of(500, 1), produced(1, version=PRODUCE_VERSION))
        peer.asks(plain(2), answered(2))
        assert proxy.written().kinds() == {}
    return proxy


def test_keyed_names_are_equal_where_names_are_and_say_nothing(tmp_path: Path) -> None:
    """Keyed names are equal hashes in groups and rules, and the name is in no file."""
    names = Names("keyed", b"k" * 16)
    proxy = named(tmp_path, names)
    group = proxy.rows("dim_group")[0]
    assert group["tag_client_id"] == names("etl") != "etl"
    assert proxy.rows("dim_bound")[0]["rule"] == f"client-id={names('etl')}"
    assert [path for path in tmp_path.rglob("*.parquet") if b"etl" in path.read_bytes()] == []


def test_names_can_be_left_out(tmp_path: Path) -> None:
    """With names left out no file has the name."""
    proxy = named(tmp_path, Names("none"))
    assert proxy.rows("dim_group")[0]["tag_client_id"] is None
    assert [path for path in tmp_path.rglob("*.parquet") if b"etl" in path.read_bytes()] == []


def test_forget_takes_a_user_out_and_leaves_every_fact(tmp_path: Path) -> None:
    """`forget` removes the user's name, the facts stay valid, and a second call changes nothing."""
    proxy = named(tmp_path, Names())
    usage, samples = proxy.rows("usage"), proxy.rows("samples")
    done = CliRunner().invoke(forget_command, [str(tmp_path), "--user", "ANONYMOUS"])
    assert done.exit_code == 0, done.output
    assert "1 row in 1 file set" in done.output
    assert {row["principal"] for row in proxy.rows("dim_client")} == {"__forgotten__"}
    assert (proxy.rows("usage"), proxy.rows("samples")) == (usage, samples)
    assert [problem for one in find_manifests(tmp_path) for problem in problems_of(tmp_path, one)] == []
    assert validate(tmp_path).kinds() == {}
    assert "0 rows" in CliRunner().invoke(forget_command, [str(tmp_path), "--user", "ANONYMOUS"]).output
    named_files = {one.path for manifest in find_manifests(tmp_path) for one in manifest.files}
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.parquet")} == named_files
    assert pq.read_table(next((tmp_path / "dim_client").rglob("*.parquet")), partitioning=None).num_rows == 1


@pytest.mark.parametrize("names", [Names(), Names("keyed", b"k" * 16)], ids=["plain", "keyed"])
def test_forget_knows_every_form_of_a_name(tmp_path: Path, names: Names) -> None:
    """`forget` removes the plain and the encoded form of a name from all tables."""
    user, encoded = "CN=alice, O=x", "CN%3Dalice%2C%20O%3Dx"
    switches = [{"mode": "off", "user": [names(encoded)], "client-id": [names("etl")]}, {"mode": "observe", "user": [names("bob")]}]
    key, own = {"run_id": RUN_ID, "proxy_id": PROXY_ID}, {"scope": "broker", "num_samples": 11, "window_ms": 1_000, "first_seen_ms": 0}
    state = {"from_seq": 0, "ts_ms": 0, "mode": "delay", "scope": "broker", "delay_max_ms": 0, "num_samples": 11, "window_ms": 1_000}
    tables = {
        "dim_group": [{**key, **own, "group_ref": 0, "quota_type": "Produce", "tag_user": names(encoded)}],
        "dim_bound": [
            {"run_id": RUN_ID, "group_ref": 0, "from_seq": 0, "bound": 1.0, "source": "x", "generation": 0, "who": names(user)}
            | {"rule": f"user={names(user)},client-id=<default>"}
        ],
        "dim_client": [
            {
                "run_id": RUN_ID,
                "client_ref": 0,
                "principal_type": "User",
                "principal": names(user),
                "client_id": "c",
                "name_form": names.form,
            }
        ],
        "states": [
            {**key, **state, "produce_enabled": True, "fetch_enabled": True, "request_enabled": True, "level": "packed"}
            | {"switches": json.dumps(switches)}
        ],
    }
    write_file_set(tmp_path, tables, 0, -1, 0, 0, {}, final=True)
    (tmp_path / "key").write_bytes(b"k" * 16)
    key_file = ["--key-file", str(tmp_path / "key")] if names.form == "keyed" else []
    done = CliRunner().invoke(forget_command, [str(tmp_path), "--user", user, *key_file])
    assert done.exit_code == 0, done.output
    reported = {table: pq.read_table(next((tmp_path / table).rglob("*.parquet")), partitioning=None).to_pylist()[0] for table in tables}
    assert reported["dim_group"]["tag_user"] == reported["dim_client"]["principal"] == reported["dim_bound"]["who"] == FORGOTTEN
    assert reported["dim_bound"]["rule"] == f"user={FORGOTTEN},client-id=<default>"
    assert json.loads(reported["states"]["switches"]) == [{**switches[0], "user": [FORGOTTEN]}, switches[1]]
    assert [problem for one in find_manifests(tmp_path) for problem in problems_of(tmp_path, one)] == []


def cut_manifest(directory: Path) -> None:
    path = next((directory / "manifests").rglob("*.json"))
    path.write_bytes(path.read_bytes()[:100])


def later_schema(directory: Path) -> None:
    path = next((directory / "manifests").rglob("*.json"))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 9}))


def strange_dimension(directory: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), next((directory / "dim_group").rglob("*.parquet")))


def damaged_dimension(directory: Path) -> None:
    next((directory / "dim_client").rglob("*.parquet")).write_bytes(b"x" * 100)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut_manifest, "not a manifest"),
        (later_schema, "schema 9"),
        (strange_dimension, "another program"),
        (damaged_dimension, "not a readable Parquet file"),
    ],
)
def test_forget_says_where_it_cannot(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    """A file set that cannot be read gives one line and exit code 2."""
    named(tmp_path, Names())
    spoil(tmp_path)
    done = CliRunner().invoke(forget_command, [str(tmp_path), "--user", "ANONYMOUS"])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert message in done.stderr
