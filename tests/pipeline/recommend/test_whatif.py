"""The effect of another quota file, compared with a reference loop over `quota`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from msgspec import structs

from pipeline.errors import BadInputError
from pipeline.quotas.file import quota_file_of
from pipeline.report.whatif_page import buckets_of, draw_whatif
from pipeline.whatif import forecast
from pipeline.whatif.comparison import as_dict, changes_of, lines_of
from pipeline.whatif.outcome import Outcomes, Waits
from pipeline.whatif.pacing import Pacing
from pipeline.whatif.work import JOB, outcomes_of, plan_work, run_all
from proxy.metering.forget import FORGOTTEN
from quota.groups.group import QuotaGroup
from quota.request_time import PERCENT_PER_NANOSECOND
from sluice_cli.meter import meter
from tests.pipeline.support.directory_parts import add_table
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_rows import Event, Sensor
from tests.support.metering.metering_scene import START_MS, Client, write_scene

CAST = [
    Client("orders", "checkout", "produce", 40_000.0, 9_000, 45),
    Client("orders", "refunds", "produce", 30_000.0, 4_000, 60),
    Client("lake", "loader", "fetch", 150_000.0, 50_000, 90),
]
AS_IT_WAS = """
[[quota]]
client-id = "checkout"
producer_byte_rate = 40000
[[quota]]
client-id = "refunds"
producer_byte_rate = 30000
[[quota]]
client-id = "loader"
consumer_byte_rate = 150000
"""
BY_USER = """
[[quota]]
user = "orders"
producer_byte_rate = "50kB"
[[quota]]
client-id = "<default>"
consumer_byte_rate = 90000
"""
CLIENT = {"client_ref": 0, "principal_type": "User", "principal": "orders", "client_id": "client-0", "name_form": "plain"}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One minute in three file sets; every client has one connection and waits when it is throttled."""
    return write_scene(tmp_path_factory.mktemp("scene"), 60, clients=CAST, file_set_s=20)


def outcomes(directory: Path, text: str, mode: str) -> Outcomes:
    [found] = outcomes_of(run_all(plan_work(directory, [quota_file_of(text, "test.toml")], mode)), 1)
    return found


def waits_by_name(found: Outcomes) -> dict[tuple[str, str], Waits]:
    return {(group.user, group.client_id): outcome.waits for group, outcome in found.items()}


def recorded_events(directory: Path, refs: set[int]) -> list[tuple[int, int]]:
    """Return (time, value) of the decisions of some groups, in order."""
    rows = [
        row for path in sorted((directory / "samples").rglob("*.parquet")) for row in pq.read_table(path, partitioning=None).to_pylist()
    ]
    events = [
        (row["sample_start_ms"] + dt_ms, value)
        for row in rows
        if row["group_ref"] in refs
        for dt_ms, value in zip(row["dt_ms"], row["val"], strict=True)
    ]
    return sorted(events, key=lambda event: event[0])


def file_set_rows(directory: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table in the first file set."""
    rows: list[dict[str, Any]] = pq.read_table(min((directory / table).rglob("*.parquet")), partitioning=None).to_pylist()
    return rows


def test_tables_that_are_no_quotas_change_nothing(scene: Path) -> None:
    """A quota file may have switches and pacings, which `sluice quotas` writes; the waits are those of the quotas alone."""
    more = '[[switch]]\ntarget = "all"\nmode = "observe"\n[[pacing]]\ntarget = "all"\npacing = "paced"\n'
    assert waits_by_name(outcomes(scene, AS_IT_WAS + more, "open")) == waits_by_name(outcomes(scene, AS_IT_WAS, "open"))
    assert waits_by_name(outcomes(scene, AS_IT_WAS, "open"))


def oracle(events: list[tuple[int, int]], bound: float) -> Waits:
    """The reference loop: every event through a sensor of `quota`."""
    group = QuotaGroup({}, bound, lazy=False)
    counts: dict[int, int] = {}
    for ts_ms, value in events:
        wait_ms = group.record(float(value), ts_ms)
        if wait_ms > 0:
            counts[wait_ms] = counts.get(wait_ms, 0) + 1
    lengths = sorted(counts)
    return Waits(lengths, [counts[length] for length in lengths])


@pytest.mark.parametrize("mode", ["open", "regroup", "closed"])
def test_the_same_quotas_give_the_recorded_waits(scene: Path, mode: str) -> None:
    """Under the quotas of the recording every mode gives the recorded waits to the millisecond, the closed loop included."""
    found = outcomes(scene, AS_IT_WAS, mode)
    assert len(found) == 3
    for outcome in found.values():
        assert outcome.waits == outcome.recorded
    assert sum(outcome.waits.number for outcome in found.values()) > 100


def test_connections_are_known_at_level_trace(tmp_path: Path) -> None:
    """At level `trace` a replay by connection gives the recorded waits of three connections that share a quota; without connections it
    does not.
    """
    cast = [Client("orders", "checkout", "produce", 60_000.0, 9_000, 45, 3)]
    traced = write_scene(tmp_path / "trace", 40, clients=cast, file_set_s=15, trace=True)
    [outcome] = outcomes(traced, AS_IT_WAS.replace("40000", "60000"), "closed").values()
    assert outcome.knows_connections
    assert outcome.waits == outcome.recorded
    packed = write_scene(tmp_path / "packed", 40, clients=cast, file_set_s=15)
    [outcome] = outcomes(packed, AS_IT_WAS.replace("40000", "60000"), "closed").values()
    assert not outcome.knows_connections


def test_what_was_in_flight_came_whatever_was_waited(tmp_path: Path) -> None:
    """In the replay the answers to requests that were in flight when a wait began stay at their recorded times."""
    cast = [Client("orders", "checkout", "produce", 60_000.0, 4_000, 45, 2, in_flight=4)]
    traced = write_scene(tmp_path, 40, clients=cast, file_set_s=15, trace=True)
    [outcome] = outcomes(traced, AS_IT_WAS.replace("40000", "60000"), "closed").values()
    assert (outcome.waits, outcome.units_sent) == (outcome.recorded, outcome.units_offered)
    assert outcome.waits.number > 100
    [halved] = outcomes(traced, AS_IT_WAS.replace("40000", "30000"), "closed").values()
    assert 0.4 < halved.units_sent / halved.units_offered < 0.7


def rest_of_answers(bound: float) -> Iterator[Event]:
    """Return a connection whose answers are judged by their first bytes; the later bytes count without a verdict."""
    group, now_ms = QuotaGroup({}, bound, cap_ms=1_000), START_MS
    for _ in range(400):
        yield Event(0, now_ms, 40_000_000)
        wait_ms = group.record(40_000_000 * PERCENT_PER_NANOSECOND, now_ms)
        yield Event(0, now_ms, 3_000_000, checked=False)
        group.record_unchecked(3_000_000 * PERCENT_PER_NANOSECOND, now_ms)
        now_ms += wait_ms + 90


@pytest.mark.parametrize("mode", ["open", "regroup"])
def test_a_row_without_decisions_is_named(tmp_path: Path, mode: str) -> None:
    """A sample row without decisions is named as damaged, without a traceback."""

    def emptied(rows: list[dict[str, Any]]) -> None:
        rows[1] |= {name: [] for name in ("dt_ms", "val", "unchecked_pos", "thr_pos", "thr_ms", "applied_ms")}

    write_directory(tmp_path, [[Event(0, START_MS + 1_500 * at, 4_000) for at in range(5)]], {0: Sensor(0, 2_000.0)}, mutate=emptied)
    add_table(tmp_path, "dim_client", [CLIENT])
    with pytest.raises(BadInputError, match="row of samples from decision 1 on has none; the file is damaged, restore it"):
        outcomes(tmp_path, AS_IT_WAS.replace("checkout", "client-0"), mode)


def test_the_rest_of_an_answer_does_not_wait(tmp_path: Path) -> None:
    """Without connections, bytes without a verdict stay with the answer before them, and the next request comes after the wait."""
    write_directory(tmp_path, [list(rest_of_answers(20.0))], {0: Sensor(0, 20.0, request=True, cap_ms=1_000)})
    add_table(tmp_path, "dim_client", [CLIENT])
    for bound in (20.0, 25.0):
        text = f'[[quota]]\nclient-id = "client-0"\nrequest_percentage = {bound}\n'
        [outcome] = outcomes(tmp_path, text, "closed").values()
        group, waits = QuotaGroup({}, bound, cap_ms=1_000), []
        for event in rest_of_answers(bound):
            record = group.record if event.checked else group.record_unchecked
            waits.append(record(event.value * PERCENT_PER_NANOSECOND, event.ts_ms) or 0)
        assert outcome.waits == Waits.of(np.array(waits)), bound
        assert outcome.waits.number > 50


def test_a_bound_that_is_kept_is_the_one_of_its_time(tmp_path: Path) -> None:
    """Groups of a callback, which no quota file names, keep their recorded bounds, including bounds that changed during the run."""
    bounds, batches, now_ms = (30_000.0, 15_000.0), [], START_MS
    group = QuotaGroup({}, bounds[0])
    for bound in bounds:
        group.update_bound(bound)
        batches.append([])
        for _ in range(300):
            batches[-1].append(Event(0, now_ms, 4_000))
            now_ms += group.record(4_000.0, now_ms) + 90
    write_directory(tmp_path, batches, {0: Sensor(0, bounds[0])}, bound_changes=[(1, 0, bounds[1])])
    add_table(tmp_path, "dim_client", [CLIENT])
    of_callback = {**file_set_rows(tmp_path, "dim_group")[0], "tags": '{"tenant":"x"}'}
    add_table(tmp_path, "dim_group", [of_callback])
    for mode in ("open", "regroup", "closed"):
        [outcome] = outcomes(tmp_path, AS_IT_WAS, mode).values()
        assert outcome.recorded.number > 100
        assert outcome.waits == outcome.recorded, mode


def test_another_bound_gives_the_waits_of_the_plain_loop(scene: Path) -> None:
    """In the open loop another bound gives the waits of the reference loop, also across file sets."""
    found = waits_by_name(outcomes(scene, '[[quota]]\nclient-id = "checkout"\nproducer_byte_rate = 55000\n', "open"))
    assert found["", "checkout"] == oracle(recorded_events(scene, {0}), 55_000.0)
    assert found["", "refunds"].number == 0, "who is in no quota any more waits no more"


def test_a_group_that_would_be_another_is_named(scene: Path) -> None:
    """In the open loop a group by client-id has no quota under a file for users, and a note says that the result is incomplete."""
    notes = {change.group: change.note for change in changes_of("user.toml", outcomes(scene, BY_USER, "open"), "open")}
    assert {group for group, note in notes.items() if "--mode regroup" in note} == {"client-id checkout", "client-id refunds"}
    assert {change.note for change in changes_of("as.toml", outcomes(scene, AS_IT_WAS, "open"), "open")} == {""}


def test_groups_that_come_together_share_one_sensor(scene: Path) -> None:
    """Under a quota for the user, two client-ids share one sensor, and their waits equal those of the reference loop."""
    found = outcomes(scene, BY_USER, "regroup")
    assert waits_by_name(found) == {
        ("orders", ""): oracle(recorded_events(scene, {0, 1}), 50_000.0),
        ("", "loader"): oracle(recorded_events(scene, {2}), 90_000.0),
    }
    assert [outcome.groups for outcome in found.values() if outcome.group.user] == [2]


def test_clients_that_wait_send_later(scene: Path) -> None:
    """In the closed loop half the quota halves what is sent, and waits are much shorter than in the open loop."""
    halved = AS_IT_WAS.replace("40000", "20000")
    closed, opened = outcomes(scene, halved, "closed"), outcomes(scene, halved, "open")
    ours = next(outcome for group, outcome in closed.items() if group.client_id == "checkout")
    assert 0.4 < ours.units_sent / ours.units_offered < 0.65
    assert ours.waits.total_ms * 3 < waits_by_name(opened)["", "checkout"].total_ms


@pytest.mark.parametrize("mode", ["open", "regroup"])
def test_who_was_forgotten_is_not_one_with_the_next(tmp_path: Path, mode: str) -> None:
    """Two forgotten users have the same name and keep separate sensors."""

    def forgotten(tables: dict[str, list[dict[str, Any]]]) -> None:
        for row in tables["dim_group"]:
            row.update(tag_user=FORGOTTEN, tag_client_id="")

    source = write_scene(tmp_path, 30, clients=CAST[:2], file_set_s=20, mutate=forgotten)
    [outcome] = outcomes(source, '[[quota]]\nuser = "<default>"\nproducer_byte_rate = 35000\n', mode).values()
    apart = [oracle(recorded_events(source, {ref}), 35_000.0) for ref in (0, 1)]
    assert outcome.waits == Waits.total(apart)
    assert outcome.groups == 1


def test_members_that_would_part_are_named(tmp_path: Path) -> None:
    """A client-id group of two users, which the record cannot split by user, stays one group and is marked."""
    cast = [Client(user, "shared", "produce", 40_000.0, 9_000, 45, group="shared") for user in ("alice", "bob")]

    def one_client_id(tables: dict[str, list[dict[str, Any]]]) -> None:
        tables["dim_group"][0].update(tag_user="", tag_client_id="shared")

    source = write_scene(tmp_path, 10, clients=cast, mutate=one_client_id)
    [outcome] = outcomes(source, '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n', "regroup").values()
    assert (outcome.is_certain, outcome.group.client_id) == (False, "shared")


def test_on_spark_the_outcomes_are_the_same(spark: Any, scene: Path) -> None:
    """With one Spark task per unit of work the results equal those of the local engine, by windows and by schedules."""
    from pipeline.spark.tasks import run_on_spark

    files = [quota_file_of(text, "test.toml") for text in (AS_IT_WAS, BY_USER)]
    work = plan_work(scene, files, "regroup")
    assert len(work) > 3
    work += plan_work(scene, files, "regroup", pacing=Pacing("paced", 500))
    assert outcomes_of(run_on_spark(spark, JOB, work), 2) == outcomes_of(run_all(work), 2)


def test_several_files_are_compared_in_every_form(scene: Path, tmp_path: Path) -> None:
    """Two quota files give two scenarios as a table, as JSON and as CSV, and --out writes the summary."""
    paths = []
    for name, text in (("today.toml", AS_IT_WAS), ("user.toml", BY_USER)):
        (tmp_path / name).write_text(text)
        paths += ["--quotas", str(tmp_path / name)]
    run = CliRunner().invoke
    reported = {
        form: run(meter, ["whatif", "--in", str(scene), *paths, "--format", form, "--out", str(tmp_path / "out")])
        for form in ("table", "json", "csv")
    }
    assert {outcome.exit_code for outcome in reported.values()} == {0}
    assert [scenario["quotas"] for scenario in json.loads(reported["json"].stdout)["scenarios"]] == ["today.toml", "user.toml"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == json.loads(reported["json"].stdout)
    assert len(reported["csv"].stdout.splitlines()) == 7
    assert "user.toml: all waits" in reported["table"].stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[quota]\n", "not TOML"),
        ('quota = "much"\n', "not a quota file"),
        ("[[quota]]\nproducer_byte_rate = 5\n", "quota[1]: needs user"),
        ('[[quota]]\nuser = "a"\nproducer_byte_rate = "5 apples"\n', "5 apples"),
        ('[[quota]]\nuser = "a"\nproducer_byte_rate = -1\n', "above 0"),
        ('[[quota]]\nuser = "a"\nspeed = 1\n', "speed"),
        ('[[quota]]\nip = "10.0.0.1"\n', "connection_creation_rate"),
    ],
)
def test_a_wrong_quota_file_is_one_line(scene: Path, tmp_path: Path, text: str, message: str) -> None:
    """A quota file that the proxy refuses is refused with the place of the error and exit code 2."""
    (tmp_path / "quotas.toml").write_text(text)
    outcome = CliRunner().invoke(meter, ["whatif", "--in", str(scene), "--quotas", str(tmp_path / "quotas.toml")])
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (2, 1)
    assert message in outcome.stderr


def test_who_asks_before_setting_quotas_gets_the_same_answer(scene: Path) -> None:
    """Quotas given as entities and values have the same result as a quota file, and data before the requested time does not count."""
    since_s = (START_MS - 1) / 1_000
    entities: dict[forecast.Entity, dict[str, float]] = {
        (("user", "orders"),): {"producer_byte_rate": 50_000.0},
        (("client-id", None),): {"consumer_byte_rate": 90_000.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 5.0},
    }
    found = {group.group: group for group in forecast.forecast_groups(scene, entities, since_s).groups}
    expected = outcomes(scene, BY_USER, "regroup")
    assert found["user orders"].throttled > 0, "a quota for a client that had none"
    assert sum(group.throttled for group in found.values()) == sum(outcome.waits.number for outcome in expected.values()) > 0
    assert sum(group.throttled_today for group in found.values()) == sum(outcome.recorded.number for outcome in expected.values()) > 0
    decisions = [
        sum(group.throttled_today for group in forecast.forecast_groups(scene, entities, since_s + later).groups) for later in (0, 25, 45)
    ]
    assert decisions[0] > decisions[1] > decisions[2] > 0
    loads_s = [forecast.forecast_groups(scene, entities, since_s + later).load_ms / 1_000 for later in (0, 25, 45)]
    assert loads_s == pytest.approx([60, 35, 15], abs=2), "the recorded load is a minute long, less what is left out"
    with pytest.raises(forecast.NoForecastError, match="nothing was metered on the last day"):
        forecast.forecast_groups(scene, entities, since_s + 1_000)
    with pytest.raises(forecast.NoForecastError, match="no such directory"):
        forecast.forecast_groups(scene / "none", entities, since_s)


def test_the_same_group_of_two_proxies_is_distinguished(scene: Path) -> None:
    """Each proxy has sensors of its own, and with several proxies each group is shown with its proxy."""
    found = outcomes(scene, AS_IT_WAS, "open")
    ours = changes_of("x", found, "open")
    theirs = [structs.replace(change, proxy_id="sluice-2") for change in ours]
    lines = [line.split() for line in lines_of([*ours, *theirs], "open") if "checkout" in line]
    assert [line[0] for line in lines] == ["sluice-1", "sluice-2"]
    assert not any("sluice-1" in line for line in lines_of(ours, "open"))
    assert [name in draw_whatif([*ours, *theirs], "open", {"x": buckets_of(found)}) for name in ("sluice-1", "sluice-2")] == [True, True]
    assert {change["proxy_id"] for change in as_dict(ours, "open")["scenarios"][0]["groups"]} == {"sluice-1"}
