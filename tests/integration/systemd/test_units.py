"""The units of deploy/systemd: systemd's own checks, and their commands run as systemd runs them."""

import json
import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path

import pytest

from tests.support.ports import free_bootstrap_port, free_port
from tests.support.processes.sluice_process import write_quotas
from tests.support.systemd.unit import PROGRAM, UNITS, ManagedService, read_unit

SERVICES = sorted(UNITS.glob("*.service"))
CONFIG_TEXT = """
supervised = true
[upstream]
bootstrap = ["127.0.0.1:{upstream}"]
[[listener]]
address = "127.0.0.1:{listener}"
protocol = "PLAINTEXT"
[quotas]
path = "quotas.toml"
[admin]
address = "127.0.0.1:{admin}"
"""
EXPOSURE_TENTHS_MAX = 14
"""Of `systemd-analyze security`, 0 to 100: what is left are the network, /proc and user namespaces."""


@pytest.fixture(scope="module")
def analyze() -> str:
    """Return the path of systemd-analyze."""
    found = shutil.which("systemd-analyze")
    if found is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    return found


def run(*command: str) -> str:
    """Return what a command prints; it must succeed."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def installed(tmp_path: Path) -> list[str]:
    """Return copies of the units whose program exists."""
    program = shutil.which("true")
    assert program is not None
    for unit in SERVICES:
        (tmp_path / unit.name).write_text(unit.read_text().replace(PROGRAM, program))
    return [str(tmp_path / unit.name) for unit in SERVICES]


def test_systemd_accepts_the_units(analyze: str, installed: list[str]) -> None:
    """`systemd-analyze verify` finds no unknown setting and no other problem."""
    assert run(analyze, "verify", *installed) == ""


def test_an_unknown_setting_is_found(analyze: str, installed: list[str]) -> None:
    """`systemd-analyze verify` names a setting that does not exist."""
    unit = Path(installed[0])
    unit.write_text(unit.read_text().replace("[Service]\n", "[Service]\nProtectEverything=yes\n"))
    assert "ProtectEverything" in run(analyze, "verify", str(unit))


@pytest.mark.parametrize("unit", SERVICES, ids=lambda path: path.stem)
def test_the_exposure_is_low(analyze: str, unit: Path) -> None:
    """`systemd-analyze security` rates the exposure of each unit at most 1.4 of 10."""
    run(analyze, "security", "--offline=true", f"--threshold={EXPOSURE_TENTHS_MAX}", str(unit))


def test_the_units_belong_together() -> None:
    """Both units run as the user of the sysusers file, and the upgrade uses the runtime directory of the service."""
    service, upgrade = (read_unit(UNITS / name) for name in ("sluice.service", "sluice-upgrade.service"))
    (user,) = re.findall(r"^u (\w+) ", (UNITS / "sluice.sysusers").read_text(), re.MULTILINE)
    assert {*service["User"], *service["Group"], *upgrade["User"], *upgrade["Group"]} == {user}
    assert upgrade["Environment"] == [f"RUNTIME_DIRECTORY=/run/{service['RuntimeDirectory'][0]}"]
    assert service["ExecStart"][0].split("--config ")[1] == upgrade["ExecStart"][0].split("--config ")[1]


class Page:
    """The admin port of a Sluice without TLS."""

    def __init__(self, port: int) -> None:
        self._port = port

    def reloads(self) -> float:
        """Return the number of reloads that succeeded."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
            (count,) = re.findall(r'^kafka_sluice_config_reloads_total\{outcome="success"\} (\S+)$', answer.read().decode(), re.MULTILINE)
        return float(count)


def test_reload_and_upgrade_are_wired_to_the_process(tmp_path: Path) -> None:
    """The service reports READY; `reload` reloads; after the upgrade unit the new process is the main one, and the old one ends."""
    admin = free_port()
    write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": 1e6}])
    config = tmp_path / "sluice.toml"
    config.write_text(CONFIG_TEXT.format(upstream=free_port(), listener=free_bootstrap_port(), admin=admin))
    page = Page(admin)
    # paths of sockets have at most 107 bytes, and those of pytest are longer in some runs
    with tempfile.TemporaryDirectory(prefix="sluice-") as short, ManagedService(Path(short), config) as service:
        first = service.main
        service.reload()
        service.until(lambda: page.reloads() == 1.0, "the reload")
        done = service.run(UNITS / "sluice-upgrade.service")
        assert (done.returncode, done.stderr) == (0, "")
        service.until(lambda: service.main != first, "MAINPID")
        assert f"process {service.main} accepts" in done.stdout
        service.until(lambda: service.states.count("READY=1") == 2, "READY=1 of the new process")
        service.until(lambda: service.has_ended(first), "the end of the old process")
        service.reload()
        service.until(lambda: page.reloads() == 1.0, "the reload of the new process")
        config.write_text("broken")
        assert service.run(UNITS / "sluice-upgrade.service").returncode == 2
    events = [json.loads(line) for line in service.log.read_text().splitlines() if line.startswith("{")]
    assert [one["event"] for one in events if "worker" not in one].count("drained") == 2
