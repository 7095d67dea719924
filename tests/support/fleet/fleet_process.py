"""A proxy of a fleet, started as an operator starts it."""

import json
from collections.abc import Callable
from typing import Any, Final

from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess

PATIENCE_S: Final = 60.0
"""A time limit against hangs."""


class FleetProcess:
    """A proxy of the fleet.

    Attributes:
        sluice: its process.
    """

    def __init__(self, sluice: SluiceProcess) -> None:
        self.sluice = sluice

    def fleet(self) -> dict[str, Any]:
        """Return the page about the fleet."""
        status, text = self.sluice.get("/fleet")
        assert status == 200, text
        found: dict[str, Any] = json.loads(text)
        return found


def eventually(is_true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    until_true(is_true, seconds=PATIENCE_S)
