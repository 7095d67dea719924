"""Sensors, a meter and a writer on a clock that the test moves, without a proxy."""

import random
from pathlib import Path
from typing import Any

import msgspec

from metering_format.event_kinds import UNRECORD
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.meter.buffer import DecisionBuffer
from proxy.meter.meter import Meter, Metered, TracingMeter
from proxy.metering.conversion.convert import run
from proxy.metering.writer import MeteringWriter, WriterSettings, header_of

WALL_MS = 1_790_000_000_000

RUN = header_of(
    "20261121T120000Z-0a1b2c3d",
    "sluice-1",
    WALL_MS,
    proxy_version="0",
    level="packed",
    names="plain",
    settings={"num_samples": 11, "window_ms": 1_000},
    quota_config_sha256=None,
)
STATE = {
    "from_seq": 0,
    "ts_ms": WALL_MS,
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


def describe(group: Metered) -> tuple[dict[str, Any], dict[str, Any]]:
    assert isinstance(group, EnforcedGroup)
    about = {"quota_type": "Produce", "scope": "broker", "node_id": 1, "tag_client_id": group.tags["client-id"]}
    sensor = {"num_samples": group.num_samples, "window_ms": group.window_ms, "cap_ms": group.cap_ms, "first_seen_ms": 0}
    return {**about, **sensor}, {"rule": "client-id", "source": "file", "generation": 1}


def convert_here(directory: Path, reported: dict[str, Any]) -> tuple[int, int]:
    """Convert in this process: a child process takes longer to start than to convert."""
    return run(directory, msgspec.json.decode(msgspec.json.encode(reported)), 0)


class MeteringWriterFixture:
    """A meter and its writer; `play` advances `now_ms`."""

    def __init__(self, directory: Path, *, buffer: DecisionBuffer | None = None, also: Any = None, **settings: Any) -> None:
        self.directory = directory
        self.now_ms = 1_000
        self.problems: list[str | None] = []
        header = {**RUN, **settings.pop("header", {})}
        self.writer = MeteringWriter(
            WriterSettings(directory, header, **settings),
            lambda: self.now_ms + WALL_MS,
            self.problems.append,
            also,
            convert_here,
        )
        meter_of_level = TracingMeter if header["level"] == "trace" else Meter
        self.meter = meter_of_level(self.writer.hand_over, describe, WALL_MS, lambda: self.groups, buffer=buffer)
        self.meter.add_fact({"state": STATE})
        self.groups = [EnforcedGroup({"client-id": f"c{at}"}, 20_000.0 * (1 + at)) for at in range(5)]

    def play(self, decisions: int, seed: int, *, every_ms: tuple[int, ...] = (0, 0, 1, 5, 40)) -> None:
        """Let the groups decide, as the data path does."""
        dice = random.Random(seed)
        for _ in range(decisions):
            self.now_ms += dice.choice(every_ms)
            group = dice.choice(self.groups)
            value = dice.randrange(4_000)
            if dice.random() < 0.05:
                group.record_unchecked(-value, self.now_ms)
                self.meter.record_unchecked(group, -value, self.now_ms, 1, 0, UNRECORD)
                continue
            wait_ms = group.record(value, self.now_ms)
            if wait_ms > 0:
                self.meter.record(group, value, wait_ms, wait_ms, self.now_ms, 1, 9)
            else:
                self.meter.passed(group, value, self.now_ms, 1, 9)
