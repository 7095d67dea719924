"""Prometheus' own tool for rules and configurations."""

import subprocess
from pathlib import Path

from tests.support.tools import require_tool


def promtool(folder: Path, *arguments: str) -> str:
    """Run promtool in a folder; return "" or, if it finds a problem, what it prints. Skips without promtool."""
    command = [require_tool("promtool", "prometheus"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr if done.returncode else ""
