"""The Helm chart: the committed manifests are what it renders, and values that would break a deployment are refused."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.kubernetes.manifests import CHART, RENDERED, manifest_of
from tests.support.places import ROOT

BUILT = ROOT / "build/bin/helm"
"""Where `make helm` puts it."""
BASE = ["--set", "upstream.bootstrap={kafka:9092}", "--set", "listener.advertisedHost=kafka.example.org", "--set", "listener.brokers={0,1}"]


@pytest.fixture(scope="module")
def helm() -> str:
    """Return the path of helm; CI has none, since it is built from source for minutes."""
    found = str(BUILT) if BUILT.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm: `make helm` builds it with Go")
    return found


def render(helm: str, *arguments: str) -> tuple[str, str]:
    """Return what `helm template` prints, and its problem."""
    command = [helm, "template", "sluice", str(CHART), "--kube-version", "1.37.0", "--namespace", "kafka", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"HELM_NO_PLUGINS": "1"})
    return done.stdout, done.stderr


@pytest.mark.parametrize("values", RENDERED, ids=lambda path: path.stem)
def test_the_manifests_are_what_the_chart_renders(helm: str, values: Path) -> None:
    """`make manifests` would not change a committed manifest."""
    assert render(helm, "--values", str(values)) == (manifest_of(values).read_text(), "")


def test_lint_finds_nothing(helm: str) -> None:
    """`helm lint --strict` accepts the chart with each set of values."""
    values = [argument for path in RENDERED for argument in ("--values", str(path))]
    done = subprocess.run([helm, "lint", "--strict", str(CHART), *values], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        pytest.param("upstream.bootstrap=null", "upstream.bootstrap is empty", id="no-upstream"),
        pytest.param("listener.advertisedHost=", "listener.advertisedHost is empty", id="no-advertised-host"),
        pytest.param("listener.brokers=null", "listener.brokers is empty", id="no-brokers"),
        pytest.param("listener.brokers={70000}", "broker 70000 would have a port above 65535", id="port-out-of-range"),
        pytest.param("listener.protocol=SSL", "listener.protocol SSL needs listener.tlsSecret", id="no-certificate"),
        pytest.param("listener.sni.bootstrap=k.example.org", "listener.sni needs listener.protocol SSL", id="host-names-without-tls"),
        pytest.param("quotaAdmin.authority=list", "needs quotas.store topic", id="a-file-for-each-pod"),
        pytest.param("quotas.store=zookeeper", "quotas.store is file or topic, not zookeeper", id="another-store"),
        pytest.param("quota.store=topic", "additional properties 'quota' not allowed", id="a-mistyped-key"),
        pytest.param("workers=0", "at '/workers'", id="no-worker"),
        pytest.param("metering.url=ftp://x/y", "at '/metering/url'", id="no-object-store"),
        pytest.param("upstream.protocol=SASL_SSL", "needs upstream.credentials", id="no-account"),
    ],
)
def test_values_that_break_a_deployment_are_refused(helm: str, wrong: str, problem: str) -> None:
    """The chart renders with the least values, and names the key of a value that does not work."""
    assert render(helm, *BASE)[1] == ""
    assert problem in render(helm, *BASE, "--set", wrong)[1]
