"""A start that waits for its quota store: no listener is open, /readyz gives the reason, and SIGTERM ends it."""

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.places import ROOT
from tests.support.ports import free_port_range


def test_b1_a_start_without_its_store_waits_and_can_be_ended(tmp_path: Path) -> None:
    """While the quota store is not read, the listeners are closed, /readyz gives the reason, and SIGTERM ends the process with code 0."""
    admin, clients, nowhere = free_port_range(1), free_port_range(1), free_port_range(1)
    config = tmp_path / "sluice.toml"
    config.write_text(
        f'[upstream]\nbootstrap = ["127.0.0.1:{nowhere}"]\n[[listener]]\naddress = "127.0.0.1:{clients}"\n'
        f'[quotas]\nstore = "zookeeper"\nconnect = "127.0.0.1:{nowhere}"\n[admin]\naddress = "127.0.0.1:{admin}"\n'
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "sluice_cli", "run", "--config", str(config)], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    try:
        checks = _readiness(admin)
        assert not checks["listeners"]["ok"]
        assert checks["quota_source"]["detail"] == f"zookeeper:127.0.0.1:{nowhere}: is not read yet"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def _readiness(port: int) -> dict[str, dict[str, object]]:
    """Return the checks of /readyz at its first answer, which has to be a 503."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
        except urllib.error.HTTPError as answer:
            assert answer.code == 503, answer  # noqa: PT017
            return {check["name"]: check for check in json.load(answer)["checks"]}
        except OSError:
            time.sleep(0.05)
    raise TimeoutError("the admin port was not opened")
