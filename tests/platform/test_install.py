"""The wheel is installed by pip, pipx and uv as docs/how-to/install.md says, and each installed Sluice serves a real client."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.demo.mock_cluster import MockCluster
from tests.support.places import ROOT
from tests.support.platform.release import RELEASE_PYTHON
from tests.support.platform.served import RECORDS, ServedSluice, records_through

INSTALL_SECONDS_MAX = 600

pytestmark = [pytest.mark.mock, pytest.mark.timeout(1_200)]


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    """Brokers that start with the test."""
    with MockCluster(2) as brokers:
        yield brokers


def run(*command: str | Path, **variables: str) -> str:
    """Run a command outside of the checkout; return what it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")} | variables
    done = subprocess.run(
        [str(part) for part in command],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return done.stdout


def check_served(sluice: Path, folder: Path, cluster: MockCluster) -> None:
    """Check that an installed command serves a client and ends by SIGTERM."""
    etc = folder / "etc"
    etc.mkdir()
    with ServedSluice(etc, [str(sluice), "run", "--config", str(etc / "sluice.toml")], cluster.bootstrap) as served:
        assert records_through(served.port) == RECORDS
        assert served.stop() == 0, served.output()
    run(sluice, "check-config", etc / "sluice.toml")
    run(sluice, "examples", folder / "examples")
    for example in ("gateway.toml", "saas-edge.toml", "users.toml"):
        run(sluice, "check-config", folder / "examples" / example)


def test_pip_into_an_empty_environment(wheel: Path, tmp_path: Path, cluster: MockCluster) -> None:
    """pip installs the wheel without numpy and pyarrow, and the proxy works; metering is refused with packages that pip then installs."""
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    pip, sluice = environment / "bin/pip", environment / "bin/sluice"
    run(pip, "install", "--quiet", wheel)
    assert {"numpy", "pyarrow"}.isdisjoint(line.split("==")[0] for line in run(pip, "freeze").splitlines())
    check_served(sluice, tmp_path, cluster)
    flags = ("--listen", "127.0.0.1:9092", "--upstream", "127.0.0.1:9", "--metering", tmp_path / "metering")
    refused = subprocess.run([sluice, "run", *map(str, flags)], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    remedy = refused.stderr.split("`")[1]
    run("sh", "-c", f"{environment}/bin/{remedy}")
    run(sluice, "meter", "--help")


def test_pipx(wheel: Path, tmp_path: Path, cluster: MockCluster) -> None:
    """pipx installs the wheel with extras into an environment of its own."""
    folders = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin"), "PIPX_MAN_DIR": str(tmp_path / "man")}
    run(RELEASE_PYTHON.with_name("pipx"), "install", "--python", sys.executable, f"{wheel}[fleet]", **folders)
    check_served(tmp_path / "bin/sluice", tmp_path, cluster)


def test_uv_tool(wheel: Path, tmp_path: Path, cluster: MockCluster) -> None:
    """uv installs the wheel with extras as a tool."""
    folders = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin"), "UV_NATIVE_TLS": "true"}
    source = f"kafka-sluice[fleet,metering] @ {wheel.as_uri()}"
    run(RELEASE_PYTHON.with_name("uv"), "tool", "install", "--python", sys.executable, source, **folders)
    check_served(tmp_path / "bin/sluice", tmp_path, cluster)
    run(tmp_path / "bin/sluice", "meter", "--help")


def test_a_wheel_with_pinned_packages(wheel: Path, tmp_path: Path) -> None:
    """The wheel works with exactly the packages of requirements/meter.txt."""
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", environment)
    run(environment / "bin/pip", "install", "--quiet", "--require-hashes", "-r", ROOT / "requirements/meter.txt")
    run(environment / "bin/pip", "install", "--quiet", "--no-deps", wheel)
    run(environment / "bin/pip", "check")
    run(environment / "bin/sluice", "meter", "--help")
