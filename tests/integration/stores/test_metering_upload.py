"""A running Sluice with `[metering.upload]`: the object store has all file sets, and validation reads them from there."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.clients.confluent import produce
from tests.support.metering.object_store import Bucket
from tests.support.patience import until_true
from tests.support.places import ROOT
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

RECORDS = 300
UPLOADED = "kafka_sluice_metering_file_sets_uploaded_total"


def judged(place: str) -> dict[str, Any]:
    """Return the verdict of `sluice meter validate`; assert exit code 0."""
    command = [sys.executable, "-m", "sluice_cli", "meter", "validate", "--in", place, "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict: dict[str, Any] = json.loads(done.stdout)
    return verdict


@pytest.mark.timeout(180)
@pytest.mark.parametrize("workers", [1, 2])
def test_everything_is_in_the_store_after_the_stop(mock_cluster: MockCluster, tmp_path: Path, bucket: Bucket, workers: int) -> None:
    """File sets arrive while Sluice runs and the rest when it stops; local files that the store has are removed, and nothing is missing
    there.
    """
    mock_cluster.create_topic("uploaded", 3)
    write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": 50_000}])
    (tmp_path / "sluice.toml").write_text(
        f'workers = {workers}\nruntime_dir = "{tmp_path}/run"\n[quotas]\npath = "quotas.toml"\n'
        '[metering]\ndir = "metering"\nproxy_id = "edge"\nrotate_seconds = 5\nmax_bytes = 1\n'
        f'[metering.upload]\nurl = "{bucket.url}"\n'
    )
    with SluiceProcess(mock_cluster.bootstrap, arguments=["--config", str(tmp_path / "sluice.toml")], name="sluice-upload") as sluice:
        sent = produce(sluice.bootstrap, "uploaded", [bytes(100)] * RECORDS)
        until_true(lambda: sluice.metric(UPLOADED) > 0, "a file set in the bucket", 60)
        sent += produce(sluice.bootstrap, "uploaded", [bytes(100)] * RECORDS)
        sluice.send(signal.SIGTERM)
        assert sluice.wait() == 0
        assert not sluice.events("metering_not_uploaded")
    verdict = judged(bucket.url)
    assert sent == 2 * RECORDS
    assert verdict["decisions"] > 0
    removed = list((tmp_path / "metering" / "removed").glob("*.json"))
    assert removed, "retention removed nothing here"
    assert not any(name.startswith("removed/") for name in bucket.contents())
