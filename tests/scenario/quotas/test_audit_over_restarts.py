"""The audit log of `sluice run` over a kill and a restart, queried by the command line."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.demo.mock_cluster import MockCluster
from proxy.quota_admin.audit.chain import verify
from tests.support.places import ROOT
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.mock
TABLES = """
[quotas]
path = "quotas.toml"
[quota_admin]
authority = "list"
principals = ["User:ANONYMOUS"]
[audit]
file = "audit.jsonl"
[admin]
address = "127.0.0.1:1"
tokens = [{ name = "ops", file = "ops.token", role = "write" }]
"""


def quotas(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sluice_cli", "quotas", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_what_was_changed_is_known_after_a_crash(mock_cluster: MockCluster, tmp_path: Path) -> None:
    """The audit log has one valid chain of all changes, by Kafka's API and by HTTP, although the process was killed in between."""
    for name, text in (("ops.token", "0123456789abcdef"), ("quotas.toml", ""), ("many.toml", "")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    (tmp_path / "many.toml").write_text("".join(f'[[quota]]\nuser = "u{at}"\nproducer_byte_rate = {at + 1}\n' for at in range(1_200)))
    (tmp_path / "sluice.toml").write_text(
        f'[upstream]\nbootstrap = "{mock_cluster.bootstrap.partition(",")[0]}"\n[[listener]]\naddress = "127.0.0.1:1"\n{TABLES}'
    )
    sluice = SluiceProcess(mock_cluster.bootstrap, arguments=("--config", str(tmp_path / "sluice.toml")), name="sluice-audit")
    kafka = ("--bootstrap-server", sluice.bootstrap)
    http = ("--admin", f"http://127.0.0.1:{sluice.admin_port}", "--admin-token", str(tmp_path / "ops.token"))
    audit = tmp_path / "audit.jsonl"
    with sluice:
        done = quotas("apply", str(tmp_path / "many.toml"), "--yes", *kafka)
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "1,200 values of 1,200 entities changed"), done.stderr
        assert quotas("switch", "all", "observe", *http).stdout == "all: observe\n"
        sluice.send(signal.SIGKILL)
        sluice.wait()
        with audit.open("ab") as file:
            file.write(b'{"seq":12')
        sluice.start()
        assert quotas("set", "--user", "u7", "producer_byte_rate=5000", *http).stdout == "user 'u7': producer_byte_rate=5000\n"
        assert quotas("describe", "--user", "u7", *kafka).stdout == "user 'u7': producer_byte_rate=5000\n"
        reported = quotas("history", "--limit", "3", *http).stdout.splitlines()
        assert [line.split(" ", 1)[1].split(" ", 1)[1].split(" 127", 1)[0] for line in reported] == [
            "mended",
            "http Token:ops",
            "http Token:ops",
        ]
        assert quotas("rollback", "--to", "0", "--yes", *kafka, *http).returncode == 0
        assert quotas("describe", *kafka).stdout == "no quota\n"
        assert quotas("history", "--verify", *http).returncode == 0
    verdict = verify(audit.read_bytes().splitlines())
    assert verdict.problems == []
    lines = [json.loads(line) for line in audit.read_bytes().splitlines()]
    assert [line["what"] for line in lines if line["event"] == "asked"] == ["alter", "alter", "switch", "alter", "alter", "alter", "switch"]
    assert (tmp_path / "quotas.toml").read_text().strip() == ""
