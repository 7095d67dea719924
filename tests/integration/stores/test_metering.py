"""Real clients through Sluice: metering agrees with the clients' own statistics, and every decision can be verified."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from pipeline.manifest import find_manifests
from pipeline.validation.local import validate
from proxy.demo.mock_cluster import MockCluster
from tests.integration.conftest import TARGETS, Target
from tests.support.clients import confluent
from tests.support.places import ROOT
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

BOUND = 400_000
RECORD_BYTES = 1_000
WINDOW_BYTES = 10 * BOUND
"""Bytes that pass at once; every further byte adds 1/400 ms of throttle time."""
SETTLED_S = 60
BOOTSTRAP_REQUESTS_MAX = 6
BOOTSTRAP_REQUEST_BYTES_MAX, BOOTSTRAP_ANSWER_BYTES_MAX = 100, 1_000


class CountingProducer:
    """A producer that counts its requests and answers, with the bytes on the wire."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._brokers: dict[str, Any] = {}
        settings = {"bootstrap.servers": bootstrap, "client.id": client_id, "statistics.interval.ms": 100, "batch.size": 200_000}
        self._producer = Producer({**settings, **confluent.QUIET, "stats_cb": self._take, "max.in.flight": 1})

    def _take(self, statistics: str) -> None:
        self._brokers = json.loads(statistics)["brokers"]

    def send(self, topic: str, size_bytes: int) -> None:
        """Send this many bytes and wait for the answers."""
        for _ in range(size_bytes // RECORD_BYTES):
            confluent.produce_waiting(self._producer, topic, partition=0, value=b"x" * RECORD_BYTES)
        assert self._producer.flush(SETTLED_S) == 0

    def counted(self) -> dict[str, int]:
        """Return requests, answers and their bytes, once no request is in flight."""
        deadline = time.monotonic() + SETTLED_S
        while True:
            before = self._sums()
            self._producer.poll(0.5)
            if before == self._sums() and before["tx"] == before["rx"]:
                return before
            assert time.monotonic() < deadline, before

    def _sums(self) -> dict[str, int]:
        sums = {name: sum(broker[name] for broker in self._brokers.values()) for name in ("tx", "txbytes", "rx", "rxbytes")}
        return {**sums, "Produce": sum(broker["req"]["Produce"] for broker in self._brokers.values())}


def rows_of(directory: Path, table: str) -> list[dict[str, Any]]:
    """Return all rows of a table that a manifest names."""
    paths = [directory / entry.path for one in find_manifests(directory) for entry in one.files if entry.table == table]
    return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


def usage_of(directory: Path, client_id: str) -> dict[str, int]:
    """Return the usage of a client in all files."""
    refs = {row["client_ref"] for row in rows_of(directory, "dim_client") if row["client_id"] == client_id}
    rows = [row for row in rows_of(directory, "usage") if row["client_ref"] in refs]
    names = ("requests", "request_bytes", "response_bytes", "produce_bytes", "fetch_bytes", "handler_ns", "throttled_requests")
    produced = {"produce_requests": sum(row["requests"] for row in rows if row["api_class"] == "produce")}
    return produced | {name: sum(row[name] for row in rows) for name in names}


def judged(directory: Path) -> dict[str, Any]:
    """Return the verdict of `sluice meter validate`; assert exit code 0."""
    command = [sys.executable, "-m", "sluice_cli", "meter", "validate", "--in", str(directory), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SETTLED_S
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class Operator:
    """Changes the mode of a running Sluice."""

    def __init__(self, directory: Path) -> None:
        self.config = directory / "sluice.toml"
        self.metering = directory / "metering"
        self.quotas = directory / "quotas.toml"
        self._reloads = 0

    def writes(self, mode: str, *, producer: int = BOUND) -> None:
        limited = {"client-id": "limited", "producer_byte_rate": producer, "request_percentage": 0.01}
        write_quotas(self.quotas, [limited, {"client-id": "reader", "consumer_byte_rate": BOUND // 10 * 13}])
        enforcement = f'[enforcement]\nmode = "{mode}"\n[quotas]\npath = "quotas.toml"\n'
        self.config.write_text(f'{enforcement}[metering]\ndir = "metering"\nproxy_id = "edge-1"\nlevel = "trace"\n')

    def changes(self, sluice: SluiceProcess, mode: str, **quotas: int) -> None:
        self.writes(mode, **quotas)
        self._reloads += 1
        sluice.send(signal.SIGHUP)
        until(lambda: len(sluice.events("config_reloaded")) == self._reloads, f"{mode} is not in force")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("target", [TARGETS[0], TARGETS[1]], indirect=True)
def test_the_files_prove_what_clients_count_themselves(target: Target, tmp_path: Path) -> None:
    """Over Produce, Fetch and request time in all three modes, with a quota change, metering validates as exact and equals librdkafka's
    statistics.

    Requests and bytes may differ by those of librdkafka's bootstrap; decisions, usage and manifests have the same sums.
    """
    topic, operator = target.topic("metered"), Operator(tmp_path)
    operator.writes("observe")
    sluice = SluiceProcess(target.bootstrap, arguments=["--config", str(operator.config)], name=f"sluice-metered-{target.brokers}")
    with sluice:
        producer = CountingProducer(sluice.bootstrap, "limited")
        producer.send(topic, WINDOW_BYTES + 600_000)
        operator.changes(sluice, "mute")
        producer.send(topic, 200_000)
        operator.changes(sluice, "delay", producer=BOUND // 2 * 3)
        producer.send(topic, WINDOW_BYTES // 20)
        settings = {"client.id": "reader", "group.id": "read-all", "fetch.message.max.bytes": 500_000}
        records = len(confluent.read_all(sluice.bootstrap, topic, 1, settings))
        counted = producer.counted()
        assert sluice.stop() == 0
    directory = operator.metering
    verdict, used = judged(directory), usage_of(directory, "limited")
    assert records == (WINDOW_BYTES + WINDOW_BYTES // 20 + 800_000) // RECORD_BYTES
    assert (verdict["verdict"], verdict["coverage_percent"], verdict["incomplete"]) == ("exact", 100.0, [])
    assert used["produce_requests"] == counted["Produce"]
    others = used["requests"] - counted["tx"]  # librdkafka drops the statistics of its bootstrap address
    assert 0 < others <= BOOTSTRAP_REQUESTS_MAX
    assert 0 < used["request_bytes"] + 4 * used["requests"] - counted["txbytes"] <= others * BOOTSTRAP_REQUEST_BYTES_MAX
    assert 0 < used["response_bytes"] + 4 * used["requests"] - counted["rxbytes"] <= others * BOOTSTRAP_ANSWER_BYTES_MAX
    counts = verdict["counts"]
    assert counts["Produce"]["units"] == used["produce_bytes"] > WINDOW_BYTES + 800_000
    assert counts["Fetch"]["units"] == usage_of(directory, "reader")["fetch_bytes"] > WINDOW_BYTES
    assert counts["Request"]["units"] == sum(manifest.usage.handler_ns for manifest in find_manifests(directory)) > used["handler_ns"] > 0
    assert all(counts[quota_type]["throttled"] > 0 for quota_type in ("Produce", "Request"))
    modes = [row["mode"] for row in rows_of(directory, "states")]
    assert [mode for mode, _ in groupby(modes)] == ["observe", "mute", "delay"]  # a file set of the next hour repeats the last one
    assert sum(manifest.usage.produce_bytes for manifest in find_manifests(directory)) == used["produce_bytes"]


@pytest.mark.mock
@pytest.mark.timeout(120)
def test_the_next_start_makes_whole_what_a_kill_left(mock_cluster: MockCluster, tmp_path: Path) -> None:
    """After a kill and a restart the recovered files have no divergence, the loss is reported, and no segment is left."""
    mock_cluster.create_topic("killed", 1)
    operator = Operator(tmp_path)
    operator.writes("mute")
    sluice = SluiceProcess(mock_cluster.bootstrap, arguments=["--config", str(operator.config)], name="sluice-metered-killed")
    with sluice:
        CountingProducer(sluice.bootstrap, "limited").send("killed", 600_000)
        until(lambda: sluice.metric("kafka_sluice_metering_usage_rows_total") > 0, "nothing was written")
        sluice.kill()
        sluice.start()
        until(lambda: len(manifest_files(operator.metering)) == 1, "nothing was repaired")
        assert sluice.stop() == 0
    verdict = validate(operator.metering)
    assert verdict.kinds() == {}
    assert verdict.decisions > 0
    assert [line for line in verdict.incomplete if "put together after a crash" in line]
    left = {path.name for path in (operator.metering / "segments").iterdir()}
    assert left == {".lock-edge-1", ".converting-edge-1"}


def manifest_files(directory: Path) -> list[Path]:
    return list((directory / "manifests").rglob("*.json"))
