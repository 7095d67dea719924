"""Result files: the printed lines with the date and the shape of the machine, and nothing that identifies the machine."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop


def machine() -> dict[str, Any]:
    """Return cores, memory, kernel and versions."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "uvloop": uvloop.__version__,
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown"


def machine_lines() -> list[str]:
    """Return the machine in one line and the date in another; the load average shows whether it was idle."""
    shape = ", ".join(f"{key} {value}" for key, value in machine().items())
    return [f"- {_now():%Y-%m-%d %H:%M} UTC, load average {os.getloadavg()[0]:.1f}", f"- {shape}"]


def _now() -> datetime:
    return datetime.now(UTC)


class Report:
    """Lines that are printed and written, and the same figures as data."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.data: dict[str, Any] = {"machine": machine()}
        self._lines: list[str] = []

    def add(self, *lines: str) -> None:
        """Append lines of Markdown."""
        self._lines += lines

    def text(self) -> str:
        """Return all lines."""
        return "\n".join(self._lines)

    def paths(self, folder: Path) -> list[Path]:
        """Return <date>-<name>.md and .json of today."""
        stem = folder / f"{_now():%Y-%m-%d}-{self.name}"
        return [stem.with_suffix(".md"), stem.with_suffix(".json")]

    def write(self, folder: Path) -> list[Path]:
        """Write both files; a result of the same name and day is replaced."""
        folder.mkdir(parents=True, exist_ok=True)
        text, data = self.paths(folder)
        text.write_text(f"# {self.name}\n\n{self.text()}\n")
        data.write_text(json.dumps(self.data, indent=1) + "\n")
        return [text, data]
