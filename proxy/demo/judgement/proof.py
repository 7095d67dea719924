"""The validation of the run by the pipeline: `sluice meter validate` of the demo's metering files."""

import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

VALIDATE_SECONDS: Final = 120


DIVERGENCES_MAX: Final = 5


class Proof(NamedTuple):
    """The result of the validation.

    Attributes:
        divergences: the first divergence of some groups, one line each.
    """

    line: str
    is_good: bool
    divergences: tuple[str, ...] = ()


def prove(metering: Path) -> Proof:
    """Recompute every metered decision in a separate process, by the command that operators use."""
    command = [sys.executable, "-m", "sluice_cli", "meter", "validate", "--in", str(metering)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=VALIDATE_SECONDS)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return Proof(f"metering no verdict within {VALIDATE_SECONDS} s", is_good=False)
    return proof_of(done.returncode, done.stdout, done.stderr)


def proof_of(code: int, stdout: str, stderr: str) -> Proof:
    """Return what the command said."""
    lines = stdout.splitlines()
    results = {words[0]: " ".join(words[1:]) for line in lines if len(words := line.split()) > 1 and not line.startswith(" ")}
    if code or "verdict" not in results:
        problem = (stderr or stdout).strip().splitlines()[-1:] or ["no word"]
        divergences = [line for line in lines if line.startswith("  ") and ": expected " in line]
        return Proof(f"metering {results.get('verdict', problem[0])}", is_good=False, divergences=tuple(divergences[:DIVERGENCES_MAX]))
    count, _, groups = results["decisions"].partition(" ")
    return Proof(f"metering {count} decisions {groups}; coverage {results['coverage']}; {results['verdict']}", is_good=True)
