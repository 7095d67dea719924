"""From decisions on the loop to files that the validator accepts: meter, writer, child process, pipeline. No socket, no proxy."""

import random
from pathlib import Path
from typing import Any

import pytest

from pipeline.manifest import find_manifests, problems_of
from pipeline.validation.local import validate
from proxy.metering.meter import Meter
from proxy.metering.record import UNRECORD
from proxy.metering.writer import MeteringWriter, WriterSettings, header_of, left_over
from quota.group import QuotaGroup

RUN = header_of(
    "20261121T120000Z-0a1b2c3d",
    "sluice-1",
    1_790_000_000_000,
    proxy_version="0",
    level="packed",
    names="plain",
    settings={"num_samples": 11, "window_ms": 1_000},
    quota_config_sha256=None,
)
STATE = {
    "from_seq": 0,
    "ts_ms": 1_790_000_000_000,
    "mode": "delay",
    "scope": "broker",
    "delay_max_ms": 5_000,
    "num_samples": 11,
    "window_ms": 1_000,
    "produce_enabled": True,
    "fetch_enabled": True,
    "request_enabled": True,
    "level": "packed",
}


def describe(group: QuotaGroup) -> tuple[dict[str, Any], dict[str, Any]]:
    about = {"quota_type": "Produce", "scope": "broker", "node_id": 1, "tag_client_id": group.tags["client-id"]}
    sensor = {"num_samples": group.num_samples, "window_ms": group.window_ms, "cap_ms": group.cap_ms, "first_seen_ms": 0}
    return {**about, **sensor}, {"rule": "client-id", "source": "file", "generation": 1}


class House:
    """A meter and its writer, with a clock of our own."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.now_ms = 0
        self.problems: list[str | None] = []
        self.writer = MeteringWriter(
            WriterSettings(directory, {**RUN, **settings.pop("header", {})}, **settings),
            lambda: self.now_ms + 1_790_000_000_000,
            self.problems.append,
        )
        self.meter = Meter(self.writer.hand_over, describe, 1_790_000_000_000)
        self.meter.tell({"state": STATE})
        self.groups = [QuotaGroup({"client-id": f"c{at}"}, 20_000.0 * (1 + at)) for at in range(5)]

    def play(self, decisions: int, seed: int) -> None:
        """Let the groups decide, as the data path would."""
        dice = random.Random(seed)
        for _ in range(decisions):
            self.now_ms += dice.choice([0, 0, 1, 5, 40])
            group = dice.choice(self.groups)
            value = dice.randrange(4_000)
            if dice.random() < 0.05:
                group.record_unchecked(-value, self.now_ms)
                self.meter.record_unchecked(group, -value, self.now_ms, 1, 0, UNRECORD)
                continue
            wait_ms = group.record(value, self.now_ms)
            self.meter.record(group, value, max(wait_ms, 0), max(wait_ms, 0), self.now_ms, 1, 9)


@pytest.mark.parametrize("level", ["packed", "trace"])
def test_what_was_decided_is_what_can_be_worked_out_again(tmp_path: Path, level: str) -> None:
    """Three file sets of one run, with a bound that changes between and inside them, are judged exact and complete."""
    house = House(tmp_path, header={"level": level})
    house.writer.start()
    for part in range(3):
        house.play(6_000, part)
        house.groups[0].update_bound(5_000.0 * (part + 1))
        house.play(1_000, part)
        house.meter.flush()
        house.writer.rotate()
        house.groups[1].update_bound(9_000.0 * (part + 1))
    house.play(10, 9)
    house.meter.flush()
    assert house.writer.stop(60)
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent) == ({}, [], 100.0)
    assert verdict.decisions == 21_010
    assert [problem for manifest in find_manifests(tmp_path) for problem in problems_of(tmp_path, manifest)] == []
    assert left_over(tmp_path) == []


def test_a_crash_leaves_whole_batches(tmp_path: Path) -> None:
    """A segment cut in the middle of a batch gives a file set that says so, exact for all that is in it."""
    house = House(tmp_path)
    house.writer.start()
    house.play(20_000, 1)
    house.meter.flush()
    while house.writer.counts.decisions < 20_000:
        pass
    raw = next((tmp_path / "segments").glob("*.arrows.open"))
    raw.write_bytes(raw.read_bytes()[: -raw.stat().st_size // 10])
    second = MeteringWriter(WriterSettings(tmp_path, RUN), lambda: 0, lambda _problem: None)
    second.start(left_over(tmp_path))
    assert second.stop(60)
    verdict = validate(tmp_path)
    assert verdict.kinds() == {}
    assert any("put together after a crash" in line for line in verdict.incomplete)
    assert 10_000 < verdict.decisions < 20_000
