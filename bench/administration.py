"""How long do operations on many quotas take? `python -m bench.administration [--entities 10000]`.

`sluice run` has a quota file, an audit log and the mock cluster behind it; `sluice quotas` runs in child processes. The bench prints the
wall time of each command, and the longest lag of the event loop during it, as the proxy's own watchdog reports it.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from proxy.demo.mock_cluster import MockCluster
from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, QuotaAdmin
from tests.support.places import ROOT
from tests.support.processes.sluice_process import SluiceProcess

CHANGES = 1_000
MINUTE_S = 60.0
TABLES = (
    '[quotas]\npath = "quotas.toml"\n[quota_admin]\nauthority = "list"\nprincipals = ["User:ANONYMOUS"]\n[audit]\nfile = "audit.jsonl"\n'
)


def main(entities: int) -> int:
    """Run the bench; return the exit code."""
    with tempfile.TemporaryDirectory() as name, MockCluster() as cluster:
        folder = Path(name)
        (folder / "quotas.toml").touch(mode=0o600)
        upstream = cluster.bootstrap.partition(",")[0]
        (folder / "sluice.toml").write_text(f'[upstream]\nbootstrap = "{upstream}"\n[[listener]]\naddress = "127.0.0.1:1"\n{TABLES}')
        with SluiceProcess(cluster.bootstrap, arguments=("--config", str(folder / "sluice.toml")), name="bench-administration") as sluice:
            _one_by_one(sluice, "alone")
            _bulk(folder, entities, sluice)
            _one_by_one(sluice, f"among {entities:,} entities")
            _rollback(folder, entities, sluice)
    return 0


def _bulk(folder: Path, entities: int, sluice: SluiceProcess) -> None:
    file, where = folder / "many.toml", ("--bootstrap-server", sluice.bootstrap)
    for rate, what in ((1_000, "new"), (2_000, "with other values")):
        file.write_text("".join(f'[[quota]]\nuser = "u{at}"\nproducer_byte_rate = {rate + at}\n' for at in range(entities)))
        _timed(f"apply {entities:,} entities, {what}", "apply", str(file), "--yes", *where)
    _timed(f"diff {entities:,} entities", "diff", str(file), *where)
    print(f"longest lag of the loop in the last one to two minutes: {_lag_ms(sluice):.0f} ms", flush=True)


def _rollback(folder: Path, entities: int, sluice: SluiceProcess) -> None:
    changes = 2 * entities + 2 * (CHANGES + 1)
    where = ("--audit", str(folder / "audit.jsonl"), "--bootstrap-server", sluice.bootstrap)
    _timed(f"rollback of {changes:,} changes", "rollback", "--to", "0", "--yes", *where)
    print(f"longest lag of the loop in the last one to two minutes: {_lag_ms(sluice):.0f} ms", flush=True)


def _lag_ms(sluice: SluiceProcess) -> float:
    return sluice.metric("kafka_sluice_loop_lag_max_seconds") * 1_000


def _one_by_one(sluice: SluiceProcess, where: str) -> None:
    alice = ClientQuotaEntity.of({"user": "alice"})
    with QuotaAdmin(sluice.bootstrap) as admin:
        begun, slowest = time.monotonic(), 0.0
        for number in range(CHANGES):
            asked = time.monotonic()
            results = admin.alter_client_quotas([ClientQuotaAlteration(alice, {"producer_byte_rate": 1_000.0 + number})])
            assert results == {alice: None}, results
            slowest = max(slowest, time.monotonic() - asked)
            time.sleep(max(0.0, begun + (number + 1) * MINUTE_S / CHANGES - time.monotonic()))
        admin.alter_client_quotas([ClientQuotaAlteration(alice, {"producer_byte_rate": None})])
    figures = f"slowest answer {slowest * 1_000:.0f} ms, longest lag of the loop {_lag_ms(sluice):.0f} ms"
    print(f"{CHANGES:,} changes in a minute, {where}: {figures}", flush=True)


def _timed(what: str, *arguments: str) -> None:
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "sluice_cli", "quotas", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"{what}: {time.monotonic() - begun:.1f} s  ({done.stdout.splitlines()[-1]})", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.administration", description="How long many quotas take.")
    parser.add_argument("--entities", type=int, default=10_000)
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(parser.parse_args().entities))
