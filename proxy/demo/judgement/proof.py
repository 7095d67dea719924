"""The validation of the run by the pipeline: `sluice meter validate` of the demo's metering files."""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

VALIDATE_SECONDS: Final = 120


class Proof(NamedTuple):
    """The result of the validation."""

    line: str
    is_good: bool


def prove(metering: Path) -> Proof:
    """Recompute every metered decision in a separate process, by the command that operators use."""
    command = [sys.executable, "-m", "sluice_cli", "meter", "validate", "--in", str(metering)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VALIDATE_SECONDS)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return Proof(f"metering no verdict within {VALIDATE_SECONDS} s", is_good=False)
    results = {words[0]: " ".join(words[1:]) for line in done.stdout.splitlines() if len(words := line.split()) > 1}
    if done.returncode or "verdict" not in results:
        problem = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no word"]
        return Proof(f"metering {results.get('verdict', problem[0])}", is_good=False)
    count, _, groups = results["decisions"].partition(" ")
    return Proof(f"metering {count} decisions {groups}; coverage {results['coverage']}; {results['verdict']}", is_good=True)
