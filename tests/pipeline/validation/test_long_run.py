"""Rates over minutes compared with the ceiling of Kafka's algorithm, and groups compared with the quota file."""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pipeline.errors import BadInputError
from pipeline.file_sets import checked_runs
from pipeline.report.validate_page import draw_verdict
from pipeline.tasks import run_local
from pipeline.validation.by_file import check_by_file
from pipeline.validation.local import validate
from pipeline.validation.rules.long_run import ThrottleWindow, ceiling
from pipeline.validation.rules.whole_run.rates import judge
from sluice_cli.meter import meter
from tests.pipeline.support.closed_loop import START_MS, closed_loop
from tests.pipeline.support.directory_parts import add_table
from tests.support.metering.metering_buckets import Buckets, write_buckets
from tests.support.metering.metering_directory import write_directory
from tests.support.metering.metering_rows import Event, Sensor

BOUND = 100_000.0
SECONDS = 240


def stretch_of(events: list[Event], connections: int, cap_s: float = 25.0) -> ThrottleWindow:
    later = [event for event in events if event.ts_ms >= START_MS + 30_000]
    units = sum(event.value for event in later)
    return ThrottleWindow(later[0].ts_ms, later[-1].ts_ms, 0, units, len(later), BOUND, cap_s, connections, BOUND * 11)


@pytest.mark.parametrize(
    ("connections", "size"), [(1, 0.01), (1, 1.0), (16, 0.01), (64, 0.01), (256, 0.01), (64, 0.1), (16, 1.0), (4, 1.0)]
)
@pytest.mark.parametrize("cap_ms", [None, 1_000])
def test_who_waits_is_below_the_ceiling(connections: int, size: float, cap_ms: int | None) -> None:
    """Connections that send one request per wait stay below the ceiling, for any number and size, with capped waits or not."""
    events = list(closed_loop(connections, int(size * BOUND), BOUND, SECONDS, cap_ms=cap_ms))
    reported = judge([(0, stretch_of(events, connections, 25.0 if cap_ms is None else cap_ms / 1_000))])
    assert reported is not None
    assert reported.ratio <= reported.allowed


@pytest.mark.parametrize(("connections", "size", "times"), [(1, 0.01, 2.0), (1, 0.1, 2.0), (4, 0.01, 1.5), (16, 0.001, 1.3)])
def test_who_does_not_wait_is_above_it(connections: int, size: float, times: float) -> None:
    """Clients that send at a multiple of their quota without waiting are above the ceiling."""
    gap_ms = int(1_000 * connections * size / times)
    events = list(closed_loop(connections, int(size * BOUND), BOUND, SECONDS, heeds=False, gap_ms=gap_ms))
    reported = judge([(0, stretch_of(events, connections))])
    assert reported is not None
    assert reported.ratio > reported.allowed


def test_the_ceiling_is_the_simulated_one() -> None:
    """Without its margin of one percent the formula gives the results of simulations of Kafka's algorithm."""
    assert [round(ceiling(k, 25.0) / 1.01, 3) for k in (0.4, 1.6, 2.56, 4.0, 12.8)] == [1.037, 1.134, 1.203, 1.294, 1.712]
    assert ceiling(2.56, 1.0) / 1.01 == pytest.approx(2.56)


def test_too_short_or_unknown_is_not_judged() -> None:
    """A run of less than a minute, or with an unknown number of connections, is not judged."""
    events = list(closed_loop(1, 10_000, BOUND, 80))
    assert judge([(0, stretch_of(events, 1))]) is None
    assert judge([(0, stretch_of(list(closed_loop(1, 10_000, BOUND, 120)), 0))]) is None


def metered(folder: Path, events: list[Event], connections: int, *, file_sets: int = 2, source: str = "table") -> Path:
    """Write a directory with these records of client-0, and usage rows with its number of connections."""
    parts = [events[len(events) * at // file_sets : len(events) * (at + 1) // file_sets] for at in range(file_sets)]
    directory = write_directory(folder, parts, {0: Sensor(0, BOUND)})
    add_table(
        directory,
        "dim_client",
        [{"client_ref": 0, "principal_type": "User", "principal": "u", "client_id": "client-0", "name_form": "plain"}],
    )
    counted = {"requests": 0, "request_bytes": 0, "response_bytes": 0, "produce_bytes": 0, "fetch_bytes": 0, "handler_ns": 0}
    rest = {"throttled_requests": 0, "throttle_ms": 0, "connections_opened": 0, "connections_open": connections}
    place = {"client_ref": 0, "node_id": 1, "node": "1", "listener": "main", "api_class": "produce", "second_ms": START_MS}
    add_table(directory, "usage", [{**place, **counted, **rest}])
    bound = {"group_ref": 0, "from_seq": 0, "bound": BOUND, "rule": "client-id=client-0", "source": source, "generation": 1}
    add_table(directory, "dim_bound", [bound])
    return directory


def test_a_rate_above_the_ceiling_is_a_violation(tmp_path: Path) -> None:
    """Over whole file sets a client that does not wait is a RATE violation with the file sets as evidence, and one that waits is none."""
    heeds = metered(tmp_path / "heeds", list(closed_loop(4, 10_000, BOUND, SECONDS)), 4)
    assert validate(heeds).kinds() == {}
    assert validate(heeds).long_runs.groups == 1
    escapes = metered(tmp_path / "escapes", list(closed_loop(4, 1_000, BOUND, SECONDS, heeds=False, gap_ms=20)), 4)
    verdict = validate(escapes)
    assert verdict.kinds() == {"RATE": 1}
    assert len(verdict.first()[0][1].evidence) == 2
    assert "Other checks" in draw_verdict(verdict, 50)
    shown = CliRunner().invoke(meter, ["validate", "--in", str(escapes), "--explain"])
    assert shown.exit_code == 1
    assert "at most 4 connections" in shown.output
    assert "group 0, client-id client-0 (Produce), seq " in shown.output


def bucketed(folder: Path, serve: Callable[[Buckets], None]) -> Path:
    """Write a directory with one bucket of 5 mutations per second in three file sets, and usage rows with its number of connections."""

    def counted(tables: dict[str, list[dict[str, Any]]]) -> None:
        run = {"run_id": tables["events"][0]["run_id"]}
        who = {"principal_type": "User", "principal": "u", "client_id": "c0", "name_form": "plain"}
        tables["dim_client"] = [{**run, "client_ref": 0, **who}]
        names = ("requests", "request_bytes", "response_bytes", "produce_bytes", "fetch_bytes", "handler_ns")
        rest = dict.fromkeys([*names, "throttled_requests", "throttle_ms", "connections_opened"], 0)
        place = {"proxy_id": tables["events"][0]["proxy_id"], "client_ref": 0, "node_id": 1, "node": "1", "listener": "main"}
        tables["usage"] = [{**run, **place, "api_class": "other", "second_ms": START_MS, **rest, "connections_open": 6}]

    return write_buckets(folder, Buckets([5.0]), [serve] * 3, counted)


def test_a_bucket_whose_clients_do_not_wait_is_a_violation(tmp_path: Path) -> None:
    """Connections that wait, old clients included, keep a bucket at its bound; old clients that do not wait are RATE and nothing else."""
    dice = random.Random(8)
    heeds = validate(bucketed(tmp_path / "heeds", lambda buckets: buckets.serve(6, 100, dice)))
    assert heeds.kinds() == {}
    assert (reported := heeds.long_runs.highest) is not None
    assert 0.9 < reported.ratio < reported.allowed

    def escaping(buckets: Buckets) -> None:
        for _ in range(200):
            buckets.now_ms += 500
            buckets.step(0, 5, "permissive")

    assert validate(bucketed(tmp_path / "escapes", escaping)).kinds() == {"RATE": 1}


def quota_file(folder: Path, text: str) -> tuple[Path, str]:
    """Write a quota file; return its path, and how a bound names it as its source."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "quotas.toml"
    path.write_text(text)
    return path, f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ('[[quota]]\nclient-id = "client-0"\nproducer_byte_rate = 100000\n', {}),
        ('[[quota]]\nclient-id = "client-0"\nproducer_byte_rate = 100001\n', {"BOUND": 1}),
        ('[[quota]]\nuser = "u"\nproducer_byte_rate = 100000\n', {"GROUP": 1}),
        ('[[quota]]\nuser = "u"\nclient-id = "<default>"\nproducer_byte_rate = 100000\n', {"GROUP": 1}),
    ],
)
def test_groups_and_bounds_are_the_quota_files(tmp_path: Path, text: str, kinds: dict[str, Any]) -> None:
    """With the quota file its own groups and bounds pass, another group is GROUP, and another bound is BOUND."""
    path, source = quota_file(tmp_path / "quotas", text)
    directory = metered(tmp_path / "run", list(closed_loop(2, 10_000, BOUND, 20)), 2, source=source)
    outcome = CliRunner().invoke(meter, ["validate", "--in", str(directory), "--quotas", str(path), "--format", "json"])
    assert outcome.exit_code == (1 if kinds else 0), outcome.output
    found = check_by_file(run_local, directory, checked_runs(directory), path)
    assert {kind.value: number for findings in found.values() for kind, number in findings.counts.items()} == kinds


def test_the_digest_has_the_line_ends(tmp_path: Path) -> None:
    """Bounds that came from a quota file with line ends of another system are checked against it."""
    path = tmp_path / "quotas.toml"
    path.write_bytes(b'[[quota]]\r\nclient-id = "client-0"\r\nproducer_byte_rate = 100001\r\n')
    source = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    directory = metered(tmp_path / "run", list(closed_loop(2, 10_000, BOUND, 20)), 2, source=source)
    [findings] = check_by_file(run_local, directory, checked_runs(directory), path).values()
    assert {kind.value for kind in findings.counts} == {"BOUND"}


def test_another_quota_file_is_refused(tmp_path: Path) -> None:
    """A quota file that was never in force is refused."""
    path, _ = quota_file(tmp_path / "quotas", '[[quota]]\nuser = "u"\nproducer_byte_rate = 1\n')
    directory = metered(tmp_path / "run", list(closed_loop(2, 10_000, BOUND, 20)), 2, source="sha256:other")
    with pytest.raises(BadInputError, match="no recorded bound comes from this file"):
        check_by_file(run_local, directory, checked_runs(directory), path)
