"""Checks of paced enforcement beside settings that it does not work with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.config.model import Config, Quotas
from proxy.config.sections.groups import Group
from proxy.config.toml_reader import Place

_WINDOW: Final = 'write pacing = "window", or leave it out'


def check_pacing(values: dict[str, Any], groups: Sequence[tuple[str, Group]], place: Place) -> None:
    """Report settings under which a schedule would belong to one process only, or to nobody."""
    quotas = values.get("quotas") or Quotas()
    _check_parents(quotas, groups, place)
    paced = [key for key, group in groups if group.pacing == "paced"]
    keys = (["quotas"] if quotas.pacing == "paced" else []) + paced
    if not keys:
        if quotas.paced_burst_ms != Quotas().paced_burst_ms:
            place.add("quotas.paced_burst_ms", 'has no effect without pacing = "paced"', 'leave it out, or write pacing = "paced"')
        return
    is_alone = values.get("workers", 1) == 1 and not values.get("supervised") and values.get("fleet") is None
    refusal = pacing_refusal(quotas.store, is_alone=is_alone)
    if refusal is not None:
        place.add(f"{keys[0]}.pacing", refusal, _WINDOW)


def pacing_refusal(store: str, *, is_alone: bool) -> str | None:
    """Return why nothing can be paced; None: it can.

    Args:
        store: the store of quotas.
        is_alone: whether there is one process: no workers, no supervisor and no fleet.
    """
    if store == "forward":
        return 'cannot be "paced" with store = "forward": the brokers enforce by the window'
    return None if is_alone else 'cannot be "paced" with workers, supervised or a fleet: a schedule belongs to one process'


def _check_parents(quotas: Quotas, groups: Sequence[tuple[str, Group]], place: Place) -> None:
    """Report a group whose parent has another pacing: usage of a group counts for its parent by the same rule."""
    by_name = {group.name: group for _, group in groups}
    for key, group in groups:
        parent = by_name.get(group.parent or "")
        if parent is not None and (group.pacing or quotas.pacing) != (parent.pacing or quotas.pacing):
            theirs = parent.pacing or quotas.pacing
            place.add(f"{key}.pacing", f'differs from that of its parent "{parent.name}"', f'write pacing = "{theirs}" for both')


def refusal_of(config: Config) -> str | None:
    """Return why nothing can be paced with a configuration; None: it can."""
    is_alone = config.workers == 1 and not config.supervised and config.fleet is None
    return pacing_refusal(config.quotas.store, is_alone=is_alone)
