"""Delta tables of a roll-up in an object store."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from pipeline.builds.runs import SCHEMA
from pipeline.delta.store import DeltaStore
from pipeline.errors import IncompleteError
from sluice_cli.meter import meter
from tests.pipeline.support.first_hour import two_hours
from tests.support.metering.object_store import Bucket, new_bucket
from tests.support.ports import free_port


@pytest.fixture
def other_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    """A bucket in a server of its own process: deltalake waits for the server without giving other threads a turn."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            yield _bucket(monkeypatch, f"http://127.0.0.1:{port}")
        finally:
            server.terminate()


def _bucket(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> Bucket:
    """Return a bucket when the server answers."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return new_bucket(monkeypatch, endpoint)
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_store_gets_delta_tables(tmp_path: Path, other_process: Bucket) -> None:
    """The tables are in the bucket, a second run builds nothing, and of two runs that publish at the same time the second one fails."""
    source, place = two_hours(tmp_path / "in"), f"s3://{other_process.name}/gold"
    arguments = ["rollup", "--in", str(source), "--sink", "delta", "--out", place]
    assert CliRunner().invoke(meter, arguments).exit_code == 0
    assert "no new file sets" in CliRunner().invoke(meter, arguments).stdout
    assert DeltaTable(f"{place}/usage_hour", storage_options={"allow_http": "true"}).to_pyarrow_table().num_rows == 6
    stores = [DeltaStore(place, place) for _ in range(2)]
    for store in stores:
        assert store.read_runs()
    row = pa.Table.from_pylist([{"scope": "closed"}], schema=SCHEMA)
    stores[0].count(row, [])
    with pytest.raises(IncompleteError, match="another roll-up has published meanwhile"):
        stores[1].count(row, [])
