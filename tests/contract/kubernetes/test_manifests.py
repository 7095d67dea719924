"""The manifests of deploy/kubernetes are valid for the newest versions of Kubernetes, and their parts fit together."""

import copy
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from sluice_cli.root import main
from tests.support.kubernetes.manifests import (
    KUBERNETES,
    MANIFESTS,
    RENDERED,
    SIDECAR,
    VERSIONS,
    KubernetesObject,
    manifest_of,
    named,
    objects,
    pod_of,
    scrape_config,
    selects,
    sluice_of,
)
from tests.support.kubernetes.pod_files import PodFiles
from tests.support.kubernetes.service_monitor import problems
from tests.support.monitoring.promtool import promtool

FLEETS = tuple(map(manifest_of, RENDERED))
DRAIN_SPARE_S = 2
STATE = "/var/lib/sluice"
TMP = "/tmp"  # noqa: S108 - a folder of the container
by_name = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
by_fleet = pytest.mark.parametrize("path", FLEETS, ids=lambda path: path.stem)


def config_of(found: list[KubernetesObject]) -> dict[str, Any]:
    """Return the configuration of Sluice in a manifest."""
    (text,) = [one["data"]["sluice.toml"] for one in found if one["kind"] == "ConfigMap" and "sluice.toml" in one["data"]]
    return tomllib.loads(text)


def test_the_versions_are_the_newest_three() -> None:
    """The pinned kubernetes-validate has no newer version of Kubernetes than those that are checked."""
    known = dict.fromkeys(kubernetes_validate.utils.major_minor(one) for one in kubernetes_validate.utils.all_versions())
    assert tuple(known)[-3:] == VERSIONS


@by_name
@pytest.mark.parametrize("version", VERSIONS)
def test_each_object_is_valid(path: Path, version: str) -> None:
    """The schema of Kubernetes accepts each object, without unknown keys; a ServiceMonitor has a check of its own."""
    for one in objects(path):
        if one["kind"] == "ServiceMonitor":
            assert problems(one) == []
        else:
            kubernetes_validate.validate(one, version, strict=True)


def test_an_invalid_object_is_found() -> None:
    """The checks refuse a key that does not exist, and a value of another type."""
    found = objects(FLEETS[0])
    wrong = copy.deepcopy(named(found, "Deployment"))
    wrong["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)
    monitor = copy.deepcopy(named(found, "ServiceMonitor"))
    monitor["spec"]["endpoints"][0] |= {"bearerToken": "x", "interval": 30}
    del monitor["spec"]["selector"]
    assert problems(monitor) == [
        "spec.endpoints[0].interval is no str",
        "spec.endpoints[0].bearerToken is not known",
        "spec.selector is missing",
    ]


@by_name
def test_check_config_accepts_the_configuration(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sluice check-config` accepts the configuration as a pod has it, with Secrets that the group may read."""
    files = PodFiles(objects(path), tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(["check-config", str(files.config)])
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out.startswith(f"{files.config}: valid (1 listener)")
    assert caught.value.code == 0


@by_name
def test_a_broken_configuration_is_found(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`sluice check-config` refuses the configuration of a manifest whose Secret everybody may read."""
    files = PodFiles(objects(path), tmp_path)
    (tmp_path / "etc/sluice-admin-token/token").chmod(0o444)
    with pytest.raises(SystemExit) as caught:
        main(["check-config", str(files.config)])
    assert "token" in capsys.readouterr().err
    assert caught.value.code == 2


@by_name
def test_selectors_and_ports_fit(path: Path) -> None:
    """Each Service, PodDisruptionBudget and NetworkPolicy selects the pods, and names only ports that their containers have."""
    found = objects(path)
    template = pod_of(found)
    labels, spec = template["metadata"]["labels"], template["spec"]
    ports = {port["name"] for one in [*spec.get("initContainers", ()), *spec["containers"]] for port in one.get("ports", ())}
    assert all(re.fullmatch(r"[a-z0-9-]{1,15}", name) for name in ports)
    for service in (one for one in found if one["kind"] == "Service"):
        assert selects(service["spec"]["selector"], labels)
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    assert selects(named(found, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"], labels)
    policy = named(found, "NetworkPolicy")["spec"]
    assert selects(policy["podSelector"]["matchLabels"], labels)
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports


@by_name
def test_the_container_listens_where_the_configuration_says(path: Path) -> None:
    """Ports of the container are those of sluice.toml; the probes ask health for the life and readiness for the traffic."""
    found = objects(path)
    config, container = config_of(found), sluice_of(found)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    bootstrap = ports.get("bootstrap") or ports["clients"]
    assert config["listener"][0]["address"] == f"0.0.0.0:{bootstrap}"
    assert config["admin"]["address"] == f"0.0.0.0:{ports['admin']}"
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    assert all(probe["port"] == "admin" and probe["scheme"] == "HTTPS" for probe in probes.values())


@by_name
def test_no_pod_has_quotas_of_its_own(path: Path) -> None:
    """Quotas are in a ConfigMap that no client changes, or in a topic: never in a file that one pod alters."""
    found = objects(path)
    config, container = config_of(found), sluice_of(found)
    if config["quotas"].get("store") == "topic":
        assert "path" not in config["quotas"]
        return
    assert config.get("quota_admin", {}).get("authority", "nobody") == "nobody"
    assert {token.get("role", "read") for token in config["admin"]["tokens"]} == {"read"}
    (mount,) = [one for one in container["volumeMounts"] if config["quotas"]["path"].startswith(one["mountPath"] + "/")]
    assert mount["readOnly"]
    assert "subPath" not in mount
    (volume,) = [one for one in pod_of(found)["spec"]["volumes"] if one["name"] == mount["name"]]
    assert "quotas.toml" in named(found, "ConfigMap", volume["configMap"]["name"])["data"]


@by_fleet
def test_the_service_has_each_port_that_clients_get(path: Path) -> None:
    """The Service has the bootstrap port and, without host names for brokers, the port of each broker."""
    found = objects(path)
    listener = config_of(found)["listener"][0]
    ports = {port["name"]: port["port"] for port in named(found, "Service", "sluice")["spec"]["ports"]}
    brokers = {name: port for name, port in ports.items() if name != "bootstrap"}
    if "sni" in listener:
        assert brokers == {}
    else:
        assert brokers == {f"broker-{number}": listener["first_broker_port"] + number for number in range(3)}


@by_fleet
def test_three_members_of_a_fleet(path: Path) -> None:
    """Three pods form a fleet without a name in the file, keep two while one is replaced, and may drain before they are killed."""
    found = objects(path)
    config, deployment = config_of(found), named(found, "Deployment")["spec"]
    assert deployment["replicas"] == 3
    assert "member" not in config["fleet"]
    assert deployment["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert named(found, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    pod = deployment["template"]["spec"]
    pause_s = sluice_of(found)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pause_s + config["limits"]["drain_ms"] / 1_000 + DRAIN_SPARE_S


@by_name
def test_it_runs_without_privileges(path: Path) -> None:
    """Sluice runs as the user of the image, cannot gain rights, and can write to no file but those of /tmp and of metering."""
    found = objects(path)
    writable = [STATE, TMP] if "metering" in config_of(found) else [TMP]
    pod, container = pod_of(found)["spec"], sluice_of(found)
    context = pod["securityContext"] | container["securityContext"]
    (user,) = re.findall(r"^USER (\d+):", (KUBERNETES.parents[1] / "Dockerfile").read_text(), re.MULTILINE)
    assert context["runAsNonRoot"]
    assert {context["runAsUser"], context["runAsGroup"], context["fsGroup"]} == {int(user)}
    assert context["readOnlyRootFilesystem"]
    assert not context["allowPrivilegeEscalation"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")] == writable
    assert not pod["automountServiceAccountToken"]


@by_fleet
def test_prometheus_accepts_the_scrape_of_the_service_monitor(path: Path, tmp_path: Path) -> None:
    """The ServiceMonitor selects the Service of the admin ports, becomes the job `sluice`, and promtool accepts its scrape."""
    found = objects(path)
    secrets = {"sluice-admin-token": "token", "sluice-admin-tls": "ca.crt"}
    for name, key in secrets.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / key).touch()
    scrape = scrape_config(found, "10.0.0.1:9644", tmp_path)
    (labels,) = [one["labels"] for one in scrape["static_configs"]]
    assert labels[scrape["relabel_configs"][0]["source_labels"][0]] == "sluice"
    service = named(found, "Service", "sluice-admin")
    assert service["spec"]["ports"][0]["name"] == named(found, "ServiceMonitor")["spec"]["endpoints"][0]["port"]
    assert scrape["tls_config"]["server_name"] == f"sluice-admin.{service['metadata']['namespace']}.svc"
    (tmp_path / "prometheus.yml").write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
    assert promtool(tmp_path, "check", "config", "prometheus.yml") == ""


def test_the_broker_advertises_the_port_of_its_sidecar() -> None:
    """A broker listens for clients at loopback, where Sluice connects to, and advertises the port at which Sluice listens."""
    found = objects(SIDECAR)
    config = config_of(found)
    (kafka,) = pod_of(found)["spec"]["containers"]
    settings = {one["name"]: one.get("value", "") for one in kafka["env"]}
    listens = dict(one.split("://") for one in settings["KAFKA_LISTENERS"].split(","))
    advertises = dict(one.split("://") for one in settings["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert config["sidecar"]
    assert config["upstream"]["bootstrap"] == [listens["CLIENTS"]]
    assert listens["CLIENTS"].startswith("127.0.0.1:")
    assert advertises["CLIENTS"].rpartition(":")[2] == config["listener"][0]["address"].rpartition(":")[2]
    assert settings["KAFKA_INTER_BROKER_LISTENER_NAME"] == "BROKERS"
    assert named(found, "StatefulSet")["spec"]["template"]["spec"]["initContainers"][0]["restartPolicy"] == "Always"
