"""A fixture with metering: the real meter and writer, and files for the validator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from metering_format.places import PACED, SHARED
from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from pipeline.validation.verdict import Verdict
from proxy.enforcement.mode import Mode
from proxy.meter.meter import Meter, TracingMeter
from proxy.meter.usage import Place
from proxy.metering.facts.connections import ConnectionDecisions
from proxy.metering.facts.description import GroupDescription
from proxy.metering.facts.names import Names
from proxy.metering.facts.pacing_fact import pacing_fact
from proxy.metering.facts.shares_fact import shares_fact
from proxy.metering.facts.switches_fact import switches_fact
from proxy.metering.facts.usage_facts import usage_facts
from proxy.metering.writer import MeteringWriter, WriterSettings, header_of
from proxy.shared_usage.shared_usage import SharedUsage
from quota.connections.connection_quotas import ConnectionQuotas
from tests.support.memory.memory_connection import BROKER, Peer, ProxyFixture
from tests.support.metering.metering_writer_fixture import convert_here

WALL_MS = 1_790_000_000_000
RUN_ID = "20261121T120000Z-0a1b2c3d"
LISTENER = "default"


class MeteredFixture(ProxyFixture):
    """Connections whose decisions and usage go to files below `directory`.

    Args:
        usage: the usage that the process shares with others; None: it does not share.
    """

    def __init__(
        self, directory: Path, *, level: str = "packed", names: Names | None = None, usage: SharedUsage | None = None, **settings: Any
    ) -> None:
        super().__init__(**settings)
        shared, proxy_id = {}, "sluice-1"
        if usage is not None:
            workers, worker = usage.segment.workers, usage.worker
            shared, proxy_id = {SHARED: {"segment": usage.segment.identity, "worker": worker, "workers": workers}}, f"sluice-1-{worker}"
        self.directory = directory
        self.names = names = names or Names()
        of_run = {"level": level, "names": names.form, "settings": self._schedules() | shared, "quota_config_sha256": None}
        header = header_of(RUN_ID, proxy_id, WALL_MS, proxy_version="0", **of_run)
        self.writer = MeteringWriter(WriterSettings(directory, header), self.wall_ms, lambda _problem: None, convert=convert_here)
        self.quotas = ConnectionQuotas([LISTENER])
        describe = GroupDescription(self.scopes, self.quotas, names, self.wall_ms, lambda: "static")
        meter_of_level = TracingMeter if level == "trace" else Meter
        self.meter = self.settings.meter = meter_of_level(self.writer.hand_over, describe, WALL_MS, describe.described_groups)
        self.scopes.on_labelled = self.meter.repeat_groups
        self.scopes.on_lead = self.meter.schedule_begins
        self.scopes.on_rescaled = self.meter.schedule_rescaled
        if usage is not None:
            usage.on_remote = self.meter.remote
        self.quotas.observe(ConnectionDecisions(self.meter, lambda: self.enforcement.mode is Mode.OBSERVE))
        self.level = level
        self.reported_state()

    def wall_ms(self) -> int:
        """The time in the files."""
        return self.now_ms + WALL_MS

    def switch(self, table: Mapping[str, str]) -> None:
        """Apply switches, and record them in the files."""
        super().switch(table)
        self.reported_state()

    def pace(self, table: Mapping[str, str]) -> None:
        """Apply pacings, and record them in the files."""
        had_schedules = bool(self._schedules())
        super().pace(table)
        self.reported_state()
        if not had_schedules:
            self.meter.flush()
            self.writer.add_settings(self._schedules())

    def _schedules(self) -> dict[str, int]:
        """Return the setting of a run with schedules."""
        return {} if self.pacings is None or not self.pacings.paces else {PACED: self.pacings.burst_ms}

    def reported_state(self) -> None:
        """Record the settings."""
        state = {
            "mode": self.enforcement.mode.value,
            "scope": "broker",
            "delay_max_ms": self.enforcement.delay_max_ms,
            "num_samples": 11,
            "window_ms": 1_000,
            "produce_enabled": True,
            "fetch_enabled": True,
            "request_enabled": True,
            "level": self.level,
            "switches": switches_fact(self.settings.policy.switches, self.names),
            "pacing": pacing_fact(self.pacings, self.names),
        }
        self.meter.add_fact({"state": {**state, "from_seq": self.meter.next_seq, "ts_ms": self.wall_ms()}})

    def connect(self, *arguments: Any, **settings: Any) -> Peer:
        """Return a new connection with metered usage."""
        peer = super().connect(*arguments, **settings)
        peer.connection.session.set_usage_place(Place(BROKER, LISTENER))
        return peer

    def collect(self) -> None:
        """Record usage and shares of the second that ends now."""
        second_ms = self.wall_ms() - 1_000
        for fact in usage_facts(self.meter.usage, self.names, second_ms, self.scopes.node_id):
            self.meter.add_fact(fact)
        for fact in shares_fact(self.meter.shares, second_ms, self.now_ms):
            self.meter.add_fact(fact)
        self.meter.flush()

    def written(self) -> Verdict:
        """End the run; return the validator's verdict on its files, and on those of others in the same directory."""
        assert self.loop.crashes == []
        self.collect()
        self.writer.start()
        assert self.writer.stop(60)
        return validate(self.directory)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table."""
        paths = [self.directory / entry.path for one in find_manifests(self.directory) for entry in one.files if entry.table == table]
        return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
