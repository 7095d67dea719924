"""`sluice meter compact`: fewer file sets, with the same verdict, tables and forecasts, also after an interruption."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metering_format.manifest import Manifest
from pipeline.duckdb.rollup import roll_up
from pipeline.manifest import find_manifests, problems_of
from pipeline.rollup.prices import read_prices
from pipeline.rollup.settings import RollupSettings
from pipeline.storage.paths import AnyPath, path_of
from pipeline.validation.local import validate
from proxy.metering.commands.compact import compact_command
from proxy.metering.compaction import compact as compaction
from proxy.metering.compaction.compact import CompactResult, compact
from proxy.metering.compaction.file_sets import HOUR_MS
from proxy.metering.forget import forget_user
from proxy.metering.marks import put_mark
from proxy.metering.retention import Retention, apply_retention
from proxy.metering.upload.file_sets import Upload
from proxy.metering.upload.store_files import StoreFiles
from sluice.object_store import open_object_store
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import CAST, PRICES
from tests.pipeline.validation.test_buckets import played
from tests.pipeline.workers.test_fleet_runs import STEPS
from tests.pipeline.workers.test_shared_runs import in_parts
from tests.proxy.metering.test_upkeep import PROXY, file_sets
from tests.support.fleet.metering_members import Fleet, FleetStep
from tests.support.metering.metering_buckets import Buckets, write_buckets
from tests.support.metering.metering_rows import PROXY_ID
from tests.support.metering.metering_scene import START_MS, write_scene
from tests.support.metering.object_store import Bucket

LATER_MS = 4_000_000_000_000
"""A time in the year 2096, when every hour of the tests has ended."""


def scene(directory: Path, **options: Any) -> Path:
    """Two hours of three clients in file sets of three seconds."""
    return write_scene(directory, 60, clients=CAST, start_ms=START_MS + HOUR_MS - 30_000, file_set_s=3, **options)


def traced(directory: Path) -> Path:
    return scene(directory, trace=True)


def buckets(directory: Path) -> Path:
    return write_buckets(directory, Buckets([5.0, 0.3, 40 / 3]), [played(seed=seed) for seed in range(4)])


def workers(directory: Path) -> Path:
    in_parts(directory)
    return directory


def written(directory: Path) -> Path:
    """The proxy's own files."""
    directory.mkdir(exist_ok=True)
    file_sets(directory, 4)
    return directory


SCENES = [scene, traced, buckets, workers, written]


def verdict_of(directory: AnyPath) -> dict[str, Any]:
    """Return the verdict without what depends on the borders of file sets: long-run rates end at them."""
    return {name: value for name, value in validate(directory).as_dict(50).items() if name not in ("manifests", "long_run")}


def typed(*arguments: object) -> Result:
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


@pytest.mark.parametrize("write", SCENES)
def test_the_verdict_stays(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """Fewer file sets have the same decisions, sums, long-run rates and findings, and their files fit their manifests."""
    source = write(tmp_path / "in")
    before, number = verdict_of(source), len(find_manifests(source))
    done = compact(source, LATER_MS)
    after = find_manifests(source)
    assert done == CompactResult(number, len(after), done.bytes_before, done.bytes_after)
    assert len(after) < number
    assert verdict_of(source) == before
    assert [line for one in after for line in problems_of(source, one)] == []
    assert typed("verify-manifests", source).exit_code == 0
    listed = {entry.path for one in after for entry in one.files}
    assert {str(path.relative_to(source)) for path in source.rglob("*.parquet")} == listed
    assert compact(source, LATER_MS).after == len(after), "a second call has nothing to do"


@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, level=st.sampled_from(["packed", "trace"]))
def test_any_runs_of_a_fleet_stay(tmp_path_factory: pytest.TempPathFactory, steps: list[FleetStep], level: str) -> None:
    """Whatever members with workers record, take back, assume and rotate, the verdict on their merged file sets is the same."""
    source = tmp_path_factory.mktemp("metering")
    fleet = Fleet(source, 3, 2, level)
    fleet.play(steps)
    fleet.stop()
    before = verdict_of(source)
    compact(source, LATER_MS)
    assert verdict_of(source) == before


def test_a_divergence_stays(tmp_path: Path) -> None:
    """A wrong wait is found in a merged file set as before: the same group, number, expected and recorded value."""

    def longer(tables: dict[str, list[dict[str, Any]]]) -> None:
        row = next((row for row in tables["samples"] if row["throttled_n"]), None)
        if row is not None:
            row["thr_ms"] = [row["thr_ms"][0] + 1, *row["thr_ms"][1:]]
            row["throttle_ms_sum"] += 1

    source = scene(tmp_path / "in", mutate=longer)
    before = verdict_of(source)
    assert before["kinds"]
    compact(source, LATER_MS)
    after = verdict_of(source)
    assert {**after["kinds"], "GAP": 0} == {**before["kinds"], "GAP": 0}, "a sum that differs from a manifest is one of each file set"
    rows = [[row for row in verdict["first_divergences"] if row["kind"] != "GAP"] for verdict in (before, after)]
    assert rows[0] == rows[1] != []


def tables(out: Path) -> dict[str, list[str]]:
    """Return the rows of each file, in an order of their own. Those of the quarantine have the order and the file sets of the input."""
    found = {str(path.relative_to(out)): pq.read_table(path, partitioning=None).to_pylist() for path in out.rglob("*.parquet")}
    return {name: sorted(repr({**row, "stem": ""}) for row in rows) for name, rows in found.items()}


@pytest.mark.parametrize("write", SCENES[:4])
def test_the_tables_and_forecasts_stay(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """A roll-up of merged file sets has the rows of one before; what-if, recommendations and neighbours say the same."""
    source = write(tmp_path / "in")
    (tmp_path / "quotas.toml").write_text('[[quota]]\nclient-id = "checkout"\nproducer_byte_rate = 20000\n')
    commands = [
        ["whatif", "--in", source, "--quotas", tmp_path / "quotas.toml", "--format", "json"],
        ["whatif", "--in", source, "--quotas", tmp_path / "quotas.toml", "--mode", "closed", "--format", "json"],
        ["recommend", "--in", source, "--format", "json"],
        ["neighbours", "--in", source, "--format", "json"],
    ]
    before = [typed(*command).stdout for command in commands]
    roll_up(RollupSettings(str(source), tmp_path / "a", ("minute", "hour", "day")))
    compact(source, LATER_MS)
    assert [typed(*command).stdout for command in commands] == before
    roll_up(RollupSettings(str(source), tmp_path / "b", ("minute", "hour", "day")))
    assert tables(tmp_path / "b") == tables(tmp_path / "a")


def test_a_closed_day_is_charged_once(tmp_path: Path) -> None:
    """After a compaction, and another one of more file sets, nothing of a closed day is late, and an open day has the same rows."""
    source, out = scene(tmp_path / "in"), tmp_path / "out"
    (tmp_path / "prices.toml").write_text(PRICES)
    settings = RollupSettings(str(source), out, close_through="2026-11-21", prices=read_prices(tmp_path / "prices.toml"))
    roll_up(settings)
    before = tables(out)
    compact(source, LATER_MS, 100)
    assert roll_up(settings).late == 0
    compact(source, LATER_MS)
    assert (roll_up(settings).late, tables(out)) == (0, before)


def test_half_of_a_closed_day_is_refused(tmp_path: Path) -> None:
    """File sets that a closed day has, merged with late ones, end the roll-up with one line: neither is counted twice or lost."""
    source = scene(tmp_path / "in")
    late = sorted((source / "manifests").rglob("*.json"))[1]
    text = late.read_text()
    late.unlink()
    assert typed("rollup", "--in", source, "--out", tmp_path / "out", "--close-through", "2026-11-21").exit_code == 3
    late.write_text(text)
    compact(source, LATER_MS)
    done = typed("rollup", "--in", source, "--out", tmp_path / "out")
    assert (done.exit_code, "restore the file sets from before" in done.stderr) == (3, True), done.output


STEPS = ("put_bytes", "remove", "write_parquet", "put")


def interrupted(source: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> bool:
    """Run a call that ends after so many writes and removals; return whether it was completed."""
    left = iter(range(calls))

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(compaction, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                raise OSError("ended")
            return real(*arguments, **options)

        return call if name != "remove" else lambda *paths: [call(path) for path in paths]

    with monkeypatch.context() as patched:
        for name in STEPS:
            patched.setattr(compaction, name, counted(name))
        try:
            compact(source, LATER_MS)
        except OSError:
            return False
    return True


@pytest.mark.parametrize("calls", range(0, 48, 3))
def test_an_interruption_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Whatever was written or removed when it ended, the verdict is the same, and the next call completes it and leaves no file."""
    source = buckets(tmp_path / "in")
    before = verdict_of(source)
    if not interrupted(source, monkeypatch, calls):
        assert verdict_of(source) == before
    compact(source, LATER_MS)
    assert verdict_of(source) == before
    (merged,) = find_manifests(source)
    assert len(list((source / "manifests").rglob("*.json"))) == 1
    assert {str(path.relative_to(source)) for path in source.rglob("*.parquet")} == {entry.path for entry in merged.files}


@pytest.mark.parametrize("calls", range(8, 40, 4))
def test_a_user_is_forgotten_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """`forget` also removes files with the name that an interrupted merge has left."""
    source = scene(tmp_path / "in")
    assert not interrupted(source, monkeypatch, calls)
    forget_user(source, "orders")
    assert not any(b"orders" in path.read_bytes() for path in source.rglob("*.parquet"))


def test_what_is_not_merged(tmp_path: Path) -> None:
    """The current hour, file sets that wait for the topic, and more decisions than the limit stay apart."""
    source = scene(tmp_path / "in")
    found = find_manifests(source)
    assert compact(source, found[0].first_ts_ms).after == len(found)
    last = found[-1]
    (source / "segments").mkdir()
    path = next((source / "manifests").rglob(f"{last.file_set}.json"))
    put_mark(source, last.file_set, path)
    compact(source, LATER_MS, 50)
    after = find_manifests(source)
    assert after[-1] == last
    assert all(one.last_seq - one.first_seq < 50 or not one.merged for one in after)
    assert 3 < len(after) < len(found)


def test_a_damaged_file_set_stays_and_is_named(tmp_path: Path) -> None:
    """A group with a damaged file is not merged, its file is named with exit code 3, and the other hour is merged."""
    source = scene(tmp_path / "in")
    first = find_manifests(source)[0]
    damaged = source / first.files[0].path
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")
    done = CliRunner().invoke(compact_command, [str(source)])
    assert (done.exit_code, done.stderr.count("\n")) == (3, 1), done.output
    assert str(damaged) in done.stderr
    assert first in find_manifests(source)
    assert any(one.merged for one in find_manifests(source))


def test_forget_and_retention_act_on_merged_file_sets(tmp_path: Path) -> None:
    """A user is forgotten in a merged file set, which is not merged again, and retention removes it as a whole."""
    source = scene(tmp_path / "in")
    decisions = verdict_of(source)["decisions"]
    compact(source, LATER_MS, 200)
    assert forget_user(source, "orders").rows > 0
    assert not any(b"orders" in path.read_bytes() for path in source.rglob("*.parquet"))
    number = len(find_manifests(source))
    assert compact(source, LATER_MS).after == number
    assert verdict_of(source)["decisions"] == decisions
    removed = apply_retention(source, PROXY_ID, Retention(age_ms_max=1, now_ms=LATER_MS))
    assert removed.file_sets == number
    assert not list(source.rglob("*.parquet"))


def test_the_store_follows(tmp_path: Path, bucket: Bucket) -> None:
    """After a compaction the next upload replaces the parts in the store, also after an interruption; until then readers leave them out."""
    source = scene(tmp_path / "in")
    before = verdict_of(source)

    def upload() -> None:
        store = StoreFiles(open_object_store(bucket.url))
        Upload(source, PROXY_ID, store, lambda _size: None).run()

    upload()
    compact(source, LATER_MS)
    for path in (source / "manifests").rglob("*.json"):  # a store where the upload ended before it removed the parts
        for entry in json.loads(path.read_text())["files"]:
            bucket.write(f"metering/{entry['path']}", (source / entry["path"]).read_bytes())
        bucket.write(f"metering/{path.relative_to(source)}", path.read_bytes())
    assert verdict_of(path_of(bucket.url)) == before
    upload()
    assert verdict_of(path_of(bucket.url)) == before
    here = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*.*") if path.suffix in (".json", ".parquet")}
    assert bucket.contents() == {name: content for name, content in here.items() if not name.startswith("uploaded/")}


def test_a_run_goes_on_after_its_file_sets_were_merged(tmp_path: Path) -> None:
    """The next file set of a run names the last part, and the chain is whole."""
    source = scene(tmp_path / "in")
    last = find_manifests(source)[-1]
    compact(source, last.first_ts_ms + 1)
    after = find_manifests(source)
    merged: list[Manifest] = [one for one in after if one.merged]
    assert merged
    assert any(one.previous == merged[0].last_file_set != merged[0].file_set for one in after)
    assert verdict_of(source)["incomplete"] == []
    assert PROXY
