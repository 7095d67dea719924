"""`python -m bench.pipeline`: its processes run as they are started by the command."""

import subprocess
import sys

from bench.harness.engine import ROOT


def test_the_proof_finds_no_difference_in_few_decisions() -> None:
    """The command makes traces in a pool of processes and judges every decision of each quota type."""
    command = [sys.executable, "-m", "bench.pipeline", "--only", "proof", "--proof-events", "1000", "--no-write"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines() if line.startswith("| ") and "decisions" not in line]
    assert [row[0] for row in rows] == ["Produce", "Fetch", "Request", "Connection", "ControllerMutation", *["Produce"] * 3]
    assert all(row[2] == row[3] != "0" and row[6] == "0" for row in rows)
