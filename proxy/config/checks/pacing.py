"""Checks of paced enforcement beside settings that it does not work with."""

from __future__ import annotations

from typing import Any, Final

from proxy.config.model import Quotas
from proxy.config.toml_reader import Place

_WINDOW: Final = 'write pacing = "window", or leave it out'


def check_pacing(values: dict[str, Any], place: Place) -> None:
    """Report settings under which a schedule would belong to one process only, or to nobody."""
    quotas = values.get("quotas")
    if quotas is None:
        return
    if quotas.pacing == "window":
        if quotas.paced_burst_ms != Quotas().paced_burst_ms:
            place.add("quotas.paced_burst_ms", 'has no effect with pacing = "window"', 'leave it out, or write pacing = "paced"')
        return
    if quotas.store == "forward":
        place.add("quotas.pacing", 'cannot be "paced" with store = "forward": the brokers enforce by the window', _WINDOW)
    if values.get("workers", 1) != 1 or values.get("supervised") or values.get("fleet") is not None:
        place.add("quotas.pacing", 'cannot be "paced" with workers, supervised or a fleet: a schedule belongs to one process', _WINDOW)
