"""The packages that only some settings and commands need, and the remedy where they are not installed.

Sluice starts without them. An extra in `pyproject.toml` names each again, but a remedy names the packages themselves: they are on an
index under these names, whatever Sluice was installed from.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Final

TOPIC: Final = ("aiokafka",)
"""For topics that Sluice reads or writes itself."""
FLEET: Final = ("numpy",)
"""For the sums of a fleet; its topic needs `TOPIC` too."""
METERING: Final = ("numpy", "pyarrow")
"""For metering files, written or read."""
DEMO: Final = ("aiokafka", "confluent_kafka", "kafka", *METERING)
"""For the clients and the mock cluster of the demo, and the validation of its files."""

REQUIREMENTS: Final = {
    "aiokafka": "aiokafka>=0.12,<1",
    "confluent_kafka": "confluent-kafka>=2.16,<3",
    "kafka": "kafka-python>=3,<4",
    "numpy": "numpy>=2,<3",
    "pyarrow": "pyarrow>=18",
}
"""What to install for each import."""


def missing(modules: Sequence[str]) -> list[str]:
    """Return the requirements of those modules that are not installed."""
    return [REQUIREMENTS[module] for module in modules if importlib.util.find_spec(module) is None]


def need(requirements: Sequence[str]) -> str:
    """Say that `requirements`, at least one, are needed and not installed."""
    *others, last = [_name(requirement) for requirement in requirements]
    names = f"{', '.join(others)} and {last}" if others else last
    return f"needs {names}, which {'are' if others else 'is'} not installed"


def remedy(requirements: Sequence[str]) -> str:
    """Return the command that installs `requirements`."""
    quoted = " ".join(f'"{requirement}"' for requirement in requirements)
    return f"run `pip install {quoted}` where Sluice is installed"


def _name(requirement: str) -> str:
    """Return the name of a requirement without its versions."""
    return requirement[: next((at for at, sign in enumerate(requirement) if sign in "<>=!~"), len(requirement))]
