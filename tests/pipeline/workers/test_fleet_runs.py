"""Members of a fleet write file sets that are compared with each other: each unit is recorded once at each other member."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metering_format.tables import TABLES
from pipeline.manifest import file_sha256
from pipeline.replay.findings import Kind
from pipeline.validation.local import validate
from pipeline.validation.rules.fleet.rate import Conditions, UnionUsage, judged
from pipeline.validation.text import lines_of
from pipeline.validation.verdict import Verdict
from proxy.fleet.own_usage import REPEAT_MS
from tests.pipeline.support.directory_parts import add_table
from tests.support.fleet.metering_members import LAG_MS, PUBLISH_MS, Fleet, FleetStep, MeteringMember
from tests.support.metering.metering_workers import BOUNDS, Clock, Step

PAUSES_MS = st.sampled_from([0, 0, 0, 1, 5, 9, 40, 40, 300, 1_500, 12_000])
KINDS = st.sampled_from(["record"] * 12 + ["unchecked", "back", "publish", "expire", "rotate", "cut", "heal", "heal", "hub"])
CLIENT = {"principal_type": "User", "principal": "u", "name_form": "plain"}
COUNTS = ("requests", "request_bytes", "response_bytes", "produce_bytes", "fetch_bytes", "handler_ns", "throttled_requests", "throttle_ms")
PLACE = {"node_id": 1, "node": "1", "listener": "main", "api_class": "produce", "second_ms": 0}
USAGE = {**PLACE, **dict.fromkeys(COUNTS, 0), "connections_opened": 0, "connections_open": 1}
ACTIONS = st.builds(Step, st.integers(0, 1), KINDS, st.integers(0, 2), st.integers(1, 9_000), PAUSES_MS)
STEPS = st.lists(st.builds(FleetStep, st.integers(0, 2), ACTIONS), min_size=20, max_size=60)


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, level=st.sampled_from(["packed", "packed", "trace"]))
def test_what_members_write_is_accepted(tmp_path_factory: pytest.TempPathFactory, steps: list[FleetStep], level: str) -> None:
    """Whatever members record, take back, forget and rotate, and whoever is cut off or gets a new hub, their files do not differ."""
    directory = tmp_path_factory.mktemp("metering")
    fleet = Fleet(directory, 3, 2, level)
    fleet.play(steps)
    fleet.stop()
    verdict = validate(directory)
    between_members = [finding for _, finding in verdict.first() if "member" in finding.what]
    assert between_members == [], list(lines_of(verdict, 50, explain=True))
    assert verdict.incomplete == []
    (found,) = verdict.fleets
    assert found.not_compared == found.without_files == []


def busy(directory: Path, members: int = 2, level: str = "packed") -> Path:
    """Let members use one group alternately for some seconds, and the first one once more after a pause."""
    fleet = Fleet(directory, members, level=level)
    fleet.play([FleetStep(at % members, Step(0, "record", 0, 700 + 13 * at, 40)) for at in range(150)])
    fleet.advance(8_000)
    fleet.take(FleetStep(0, Step(0, "record", 0, 100, 0)))
    fleet.stop()
    return directory


def test_members_are_compared_and_named(tmp_path: Path) -> None:
    """The verdict has what each member used and assumed, the lag between members, and the same figures as JSON and as text."""
    verdict = validate(busy(tmp_path))
    (found,) = verdict.fleets
    assert (found.name, found.groups, found.compared) == ("edge", 1, 151)
    assert LAG_MS <= found.lag_ms_max <= LAG_MS + 2 * PUBLISH_MS + REPEAT_MS
    used = {(one.member, one.quota_type): one.units for one in found.usage}
    assert used == {("a", "Produce"): 100 + sum(range(700, 2_650, 26)), ("b", "Produce"): sum(range(713, 2_650, 26))}
    assert all(one.assumed_now > 0 == one.assumed == one.left_out for one in found.usage)
    assert json.loads(json.dumps(verdict.as_dict(10)))["fleets"] == [asdict(found)]
    assert any(line.startswith("member      b, Produce: 125,625 units") for line in lines_of(verdict, 10, explain=False))


def test_a_supervisor_that_shares_connections_is_no_worker_of_its_member(tmp_path: Path) -> None:
    """The run of a supervisor whose connections other members count belongs to its member, and is compared with no run of a worker."""
    before = validate(busy(tmp_path))
    supervisor = MeteringMember(tmp_path, 2, Clock())
    supervisor.metering[0].take(Step(0, "record", 0, 700, 0))
    supervisor.stop()
    of_worker, of_supervisor = (next(tmp_path.glob(f"manifests/schema=2/proxy={name}-0/**/*.json")) for name in "ac")
    manifest = json.loads(of_supervisor.read_bytes())
    fleet = json.loads(of_worker.read_bytes())["settings"]["fleet"]
    shared = {"segment": f"{fleet['incarnation']}-connections-1", "worker": 0, "workers": 2, "numbers": [0], "of": "connections"}
    manifest["settings"] |= {"fleet": fleet, "shared": shared}
    of_supervisor.write_text(json.dumps(manifest))
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    assert verdict.incomplete == []
    assert verdict.fleets == before.fleets
    assert verdict.shared is not None
    assert verdict.shared.workers == 2


def cut_for(time_ms: int, directory: Path) -> Verdict:
    """Return the verdict on two members of which one is cut off for this time, while both go on."""
    fleet = Fleet(directory)
    work = [FleetStep(at % 2, Step(0, "record", 0, 300 + at, 50)) for at in range(200)]
    fleet.play(work)
    fleet.take(FleetStep(1, Step(0, "cut", 0, 0, 0)))
    fleet.play(work[: time_ms // 50])
    fleet.take(FleetStep(1, Step(0, "heal", 0, 0, 0)))
    fleet.play(work)
    fleet.stop()
    return validate(directory)


@pytest.mark.parametrize("time_ms", [2_000, 8_000])
def test_usage_that_was_assumed_is_accounted_for(tmp_path: Path, time_ms: int) -> None:
    """Usage that members assume while one is cut off, and that is offset later, is no difference, and the verdict has its amount."""
    verdict = cut_for(time_ms, tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    (found,) = verdict.fleets
    assert all(one.assumed > 0 and one.left_out > 0 for one in found.usage)


def test_a_hub_that_is_started_again_changes_nothing(tmp_path: Path) -> None:
    """A hub that begins anew learns the groups again, and the comparison finds no difference."""
    fleet = Fleet(tmp_path)
    work = [FleetStep(at % 2, Step(0, "record", 0, 300 + at, 50)) for at in range(100)]
    fleet.play(work)
    fleet.take(FleetStep(1, Step(0, "hub", 0, 0, 0)))
    fleet.play([*work, *work, *work, *work, *work])
    fleet.stop()
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))


def count_connections(directory: Path) -> None:
    """Add usage rows with one connection of each client to all file sets."""
    clients = {row["tag_client_id"] for path in directory.glob("dim_group/**/*.parquet") for row in pq.read_table(path).to_pylist()}
    names = dict(enumerate(sorted(clients)))
    add_table(directory, "dim_client", [{**CLIENT, "client_ref": ref, "client_id": name} for ref, name in names.items()])
    add_table(directory, "usage", [{**USAGE, "client_ref": ref} for ref in names])


@pytest.mark.parametrize(("value", "exceeds"), [(700, False), (1_500, True)])
def test_the_rate_of_all_members_together_is_held_to_the_bound(tmp_path: Path, value: int, exceeds: bool) -> None:
    """A rate that no member has alone, and that is above the bound for all of them together, is a divergence RATE at one of them."""
    fleet = Fleet(tmp_path)
    fleet.play([FleetStep(at % 2, Step(0, "record", 1, value, 250)) for at in range(400)])
    fleet.stop()
    count_connections(tmp_path)
    verdict = validate(tmp_path)
    (found,) = verdict.fleets
    assert found.rates == 1
    assert found.highest_rate == pytest.approx(4 * value / BOUNDS[1], rel=0.01)
    assert verdict.kinds() == ({Kind.RATE: 1} if exceeds else {})
    if exceeds:
        ((_, finding),) = verdict.first()
        assert finding.what.startswith("rate of a and b together over the bound")
    assert any(line.startswith("fleet rate") for line in lines_of(verdict, 10, explain=False))


@pytest.mark.parametrize(
    ("connections", "lag_ms", "k"),
    [
        pytest.param(10, 0, 5.0, id="as-in-one-process"),
        pytest.param(10, 2_000, 8.0, id="usage-within-the-lag-is-in-flight"),
    ],
)
def test_the_ceiling_is_that_of_one_process(connections: int, lag_ms: int, k: float) -> None:
    """The ceiling follows from the seconds of quota in flight over all members, with what is used within the lag."""
    usage = UnionUsage(0, 100_000, 100.0, 1, units=150_000.0, checked=1_500, bound=1_000.0)
    run = judged(usage, Conditions(connections, cap_s=3_600.0, window_s=0.0), lag_ms)
    assert run.ratio == 1.5
    assert run.k == pytest.approx(k)
    assert run.allowed == pytest.approx((1.0 + (1.0 + 4.0 * k / 10.5) ** 0.5) / 2.0 * 1.01)


# --- changed files are found


def change_own(directory: Path, change: int, *, place: str = "proxy=b-0") -> None:
    """Add units to one decision of a member in the middle, so that its own files still fit to each other."""
    change_rows(directory, lambda rows: _change_middle(rows, change), place)


def _change_middle(rows: list[dict[str, Any]], change: int) -> None:
    row = next(row for row in rows[len(rows) // 3 :] if row["n"] > row["remote_n"] and not row["thr_pos"])
    at = next(at for at in range(row["n"]) if at not in row["remote_pos"])
    row["val"][at] += change
    row["sum"] += change


def change_rows(directory: Path, alter: Callable[[list[dict[str, Any]]], None], place: str) -> None:
    """Change the rows of `samples` of one run, and adapt the manifest."""
    path = next(directory.glob(f"manifests/schema=2/{place}/**/*.json"))
    manifest = json.loads(path.read_bytes())
    entry = next(entry for entry in manifest["files"] if entry["table"] == "samples")
    file = directory / entry["path"]
    rows = pq.read_table(file, partitioning=None).to_pylist()
    before = sum(row["sum"] - row["remote_sum"] for row in rows)
    alter(rows)
    manifest["counts"]["Produce"]["units"] += sum(row["sum"] - row["remote_sum"] for row in rows) - before
    pq.write_table(pa.Table.from_pylist(rows, schema=TABLES["samples"]), file)
    entry |= {"sha256": file_sha256(file), "bytes": file.stat().st_size}
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("change", [-1, 1])
def test_a_unit_that_one_member_lost_or_added_is_found(tmp_path: Path, change: int) -> None:
    """A unit more or less in the file of one member is a difference SHARED at the other, with the amount and both names."""
    change_own(busy(tmp_path), change)
    verdict = validate(tmp_path)
    (key,) = (key for key in verdict.findings if key[0] == "a-0")
    assert set(verdict.findings[key].counts) == {Kind.SHARED}
    (finding,) = verdict.findings[key].first.values()
    assert finding.what == "units of b as recorded by member a, worker 0"
    assert finding.recorded.startswith("1 more" if change < 0 else "1 fewer")
    assert "etl" in verdict.names[key][finding.group_ref]


def test_members_without_files_are_named(tmp_path: Path) -> None:
    """A member that was heard and has no files is named; nothing is compared with it, and nothing diverges."""
    busy(tmp_path, 3)
    for path in tmp_path.rglob("proxy=c-0"):
        path.rename(tmp_path / f"gone-{path.parent.parent.name}")
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    assert verdict.incomplete == []
    (found,) = verdict.fleets
    assert found.without_files == ["c"]
    assert found.not_compared == [f"{name}: it also has usage of members without files (c)" for name in "ab"]
    assert "no files    of members of edge: c" in list(lines_of(verdict, 10, explain=False))
