"""A running Sluice with the files of a pod takes new quotas from its ConfigMap."""

from pathlib import Path
from typing import Any

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.kubernetes.manifests import KUBERNETES, SIDECAR
from tests.support.kubernetes.running_pod import RunningPod
from tests.support.patience import until_true

pytestmark = pytest.mark.mock


def rates(pod: RunningPod) -> dict[str, float]:
    """Return the produce quota of each client-id."""
    entries: list[dict[str, Any]] = pod.get("/admin/quotas")[1]["quotas"]
    return {str(one["entity"]["client-id"]): one["values"]["producer_byte_rate"] for one in entries}


def quotas(*entries: tuple[str, int]) -> dict[str, str]:
    """Return the content of a ConfigMap with quotas of client-ids."""
    return {"quotas.toml": "".join(f'[[quota]]\nclient-id = "{name}"\nproducer_byte_rate = {rate}\n' for name, rate in entries)}


@pytest.mark.parametrize("manifest", [KUBERNETES / "manifests/ports.yaml", SIDECAR], ids=lambda path: path.stem)
def test_a_swapped_config_map_changes_the_quotas(manifest: Path, tmp_path: Path) -> None:
    """When `..data` points to new quotas, they are in force without a restart; broken ones leave the last good ones, and the pod ready."""
    with MockCluster(brokers=1) as cluster, RunningPod(manifest, tmp_path, cluster.bootstrap) as pod:
        until_true(lambda: rates(pod) == {"None": 10_000_000}, "the quotas of the manifest")
        volume = pod.files.volumes["quotas"]
        for rate in (5_000, 7_000):
            volume.swap(quotas(("etl", rate), ("web", 2 * rate)))
            until_true(lambda rate=rate: rates(pod) == {"etl": rate, "web": 2 * rate}, "the new quotas")
        volume.swap({"quotas.toml": "[[quota]\n"})
        until_true(lambda: pod.get("/readyz")[1]["state"] == "degraded", "the refusal")
        assert pod.get("/readyz")[0] == 200
        assert rates(pod) == {"etl": 7_000, "web": 14_000}
        volume.swap(quotas(("etl", 9_000)))
        until_true(lambda: rates(pod) == {"etl": 9_000}, "the corrected quotas")
        until_true(lambda: pod.get("/readyz")[1]["state"] == "ready", "readiness")
