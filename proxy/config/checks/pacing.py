"""Checks of paced enforcement beside settings that it does not work with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.config.model import Config, Quotas
from proxy.config.sections.groups import Group
from proxy.config.toml_reader import Place

_FORWARDED: Final = 'cannot be "paced" with store = "forward": the brokers enforce by the window'
_WINDOW: Final = 'write pacing = "window", or leave it out'


def check_pacing(values: dict[str, Any], groups: Sequence[tuple[str, Group]], place: Place) -> None:
    """Report settings under which a schedule would belong to nobody, or would have no effect."""
    quotas = values.get("quotas") or Quotas()
    _check_parents(quotas, groups, place)
    if quotas.store != "forward":
        return
    paced = [key for key, group in groups if group.pacing == "paced"]
    keys = (["quotas"] if quotas.pacing == "paced" else []) + paced
    if keys:
        place.add(f"{keys[0]}.pacing", _FORWARDED, _WINDOW)
    elif quotas.paced_burst_ms != Quotas().paced_burst_ms:
        place.add("quotas.paced_burst_ms", 'has no effect with store = "forward"', "leave it out")


def _check_parents(quotas: Quotas, groups: Sequence[tuple[str, Group]], place: Place) -> None:
    """Report a group whose parent has another pacing: usage of a group counts for its parent by the same rule."""
    by_name = {group.name: group for _, group in groups}
    for key, group in groups:
        parent = by_name.get(group.parent or "")
        if parent is not None and (group.pacing or quotas.pacing) != (parent.pacing or quotas.pacing):
            theirs = parent.pacing or quotas.pacing
            place.add(f"{key}.pacing", f'differs from that of its parent "{parent.name}"', f'write pacing = "{theirs}" for both')


def refusal_of(config: Config) -> str | None:
    """Return why nothing can be paced at run time with a configuration; None: it can."""
    return _FORWARDED if config.quotas.store == "forward" else None
