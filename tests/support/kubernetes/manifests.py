"""The manifests of deploy/kubernetes: their objects, and the scrape that the Prometheus Operator makes of a ServiceMonitor."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.places import ROOT

KUBERNETES: Final = ROOT / "deploy/kubernetes"
CHART: Final = KUBERNETES / "chart"
RENDERED: Final = tuple(sorted((KUBERNETES / "values").glob("*.yaml")))
"""Values of which the manifest with the same name is made."""
SIDECAR: Final = KUBERNETES / "sidecar.yaml"
VERSIONS: Final = ("1.35", "1.36", "1.37")
"""The versions of Kubernetes whose schemas accept the manifests."""
KubernetesObject = dict[str, Any]


def manifest_of(values: Path) -> Path:
    """Return the committed manifest that helm makes of these values."""
    return KUBERNETES / "manifests" / values.name


MANIFESTS: Final = (*map(manifest_of, RENDERED), SIDECAR)


def objects(path: Path) -> list[KubernetesObject]:
    """Return the objects of a manifest."""
    return list(yaml.safe_load_all(path.read_text()))


def named(found: Sequence[KubernetesObject], kind: str, name: str | None = None) -> KubernetesObject:
    """Return the only object of a kind, or the one with this name."""
    (one,) = [one for one in found if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    return one


def pod_of(found: Sequence[KubernetesObject]) -> KubernetesObject:
    """Return the pod template of the Deployment or StatefulSet."""
    (workload,) = [one for one in found if one["kind"] in ("Deployment", "StatefulSet")]
    template: KubernetesObject = workload["spec"]["template"]
    return template


def sluice_of(found: Sequence[KubernetesObject]) -> KubernetesObject:
    """Return the container with Sluice: an ordinary one, or a sidecar."""
    spec = pod_of(found)["spec"]
    (container,) = [one for one in [*spec.get("initContainers", ()), *spec["containers"]] if one["name"] == "sluice"]
    found_container: KubernetesObject = container
    return found_container


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a selector of labels matches."""
    return selector.items() <= labels.items()


def scrape_config(found: Sequence[KubernetesObject], target: str, secrets: Path) -> dict[str, Any]:
    """Return the scrape of a ServiceMonitor as the Prometheus Operator writes it, with one address in the place of its discovery.

    Args:
        found: objects with a ServiceMonitor and its Service.
        target: host and port.
        secrets: a folder that has the file KEY in the folder NAME for each Secret.
    """
    monitor = named(found, "ServiceMonitor")
    metadata, spec = monitor["metadata"], monitor["spec"]
    (endpoint,) = spec["endpoints"]
    wanted = spec["selector"]["matchLabels"]
    (service,) = [one for one in found if one["kind"] == "Service" and selects(wanted, one["metadata"]["labels"])]
    credentials, authority = endpoint["authorization"]["credentials"], endpoint["tlsConfig"]["ca"]["secret"]
    labels = {_meta(name): value for name, value in service["metadata"]["labels"].items()}
    return {
        "job_name": f"serviceMonitor/{metadata['namespace']}/{metadata['name']}/0",
        "scheme": endpoint["scheme"],
        "metrics_path": endpoint["path"],
        "authorization": {
            "type": endpoint["authorization"]["type"],
            "credentials_file": str(secrets / credentials["name"] / credentials["key"]),
        },
        "tls_config": {"ca_file": str(secrets / authority["name"] / authority["key"]), "server_name": endpoint["tlsConfig"]["serverName"]},
        "static_configs": [{"targets": [target], "labels": labels}],
        "relabel_configs": [{"source_labels": [_meta(spec["jobLabel"])], "regex": "(.+)", "target_label": "job"}],
    }


def _meta(label: str) -> str:
    return "__meta_kubernetes_service_label_" + re.sub(r"\W", "_", label)
