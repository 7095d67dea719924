"""A house that meters: the real meter and writer, and files that the validator can be asked about."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq

from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from pipeline.validation.verdict import Verdict
from proxy.metering.connections import ConnectionDecisions
from proxy.metering.convert import run
from proxy.metering.description import GroupDescription
from proxy.metering.meter import Meter, TracingMeter
from proxy.metering.names import Names
from proxy.metering.usage import Place
from proxy.metering.writer import MeteringWriter, WriterSettings, header_of
from proxy.session.enforcement import Mode
from quota.connection_quotas import ConnectionQuotas
from tests.support.memory_connection import BROKER, House, Peer

WALL_MS = 1_790_000_000_000
RUN_ID = "20261121T120000Z-0a1b2c3d"
LISTENER = "default"


def convert_here(directory: Path, told: dict[str, Any]) -> int:
    """Convert without a child, whose start takes longer than its work here."""
    return run(directory, msgspec.json.decode(msgspec.json.encode(told)), 0)


class MeteredHouse(House):
    """Connections whose decisions and usage go to files below `directory`."""

    def __init__(self, directory: Path, *, level: str = "packed", names: Names | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.directory = directory
        names = names or Names()
        header = header_of(
            RUN_ID, "sluice-1", WALL_MS, proxy_version="0", level=level, names=names.form, settings={}, quota_config_sha256=None
        )
        self.writer = MeteringWriter(WriterSettings(directory, header), self.wall_ms, lambda _problem: None, convert=convert_here)
        self.quotas = ConnectionQuotas([LISTENER])
        describe = GroupDescription(self.scopes, self.quotas, names, self.wall_ms, lambda: "static")
        meter_of_level = TracingMeter if level == "trace" else Meter
        self.meter = self.settings.meter = meter_of_level(self.writer.hand_over, describe, WALL_MS, describe.everybody)
        self.quotas.observe(ConnectionDecisions(self.meter, lambda: self.enforcement.mode is Mode.OBSERVE))
        self.level = level
        self.told_state()

    def wall_ms(self) -> int:
        """What the files call the time."""
        return self.now_ms + WALL_MS

    def told_state(self) -> None:
        """Note how the house is set."""
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
        }
        self.meter.tell({"state": {**state, "from_seq": self.meter.next_seq, "ts_ms": self.wall_ms()}})

    def connect(self, *arguments: Any, **settings: Any) -> Peer:
        """Return a new connection, whose usage is metered."""
        peer = super().connect(*arguments, **settings)
        peer.connection.session.meet_place(Place(BROKER, LISTENER))
        return peer

    def written(self) -> Verdict:
        """End the run; return what the validator says of its files."""
        assert self.loop.crashes == []
        rows = self.meter.usage.take()
        for client in self.meter.usage.new_clients:
            told = {"client_ref": client.client_ref, "principal_type": client.principal_type, "name_form": "plain"}
            self.meter.tell({"client": {**told, "principal": client.principal, "client_id": client.client_id}})
        placed = [(ref, None, f"{address[0]}:{address[1]}", *rest) for ref, address, *rest in rows]
        self.meter.tell({"usage": {"second_ms": self.wall_ms(), "rows": placed}})
        self.meter.flush()
        self.writer.start()
        assert self.writer.stop(60)
        return validate(self.directory)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table."""
        paths = [self.directory / entry.path for one in find_manifests(self.directory) for entry in one.files if entry.table == table]
        return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]
