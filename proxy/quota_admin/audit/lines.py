"""Lines of the audit log for requested and completed changes. No I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from proxy.quota_admin.audit.audit import Event, entity_table
from proxy.quota_admin.observed import AppliedChange
from proxy.quota_store.store import SwitchChange
from quota.admin.messages import Alteration
from quota.entity import DEFAULT

EVENTS: Final = {"switches": "switched", "pacing": "paced"}
"""Event of a change by the table of its target."""


def _ops(alteration: Alteration) -> list[dict[str, Any]]:
    return [{"key": key, "value": None if remove else _number(value)} for key, value, remove in alteration.ops]


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def asked_entries(alterations: Sequence[Alteration]) -> list[dict[str, Any]]:
    """Return the requested changes, entity by entity."""
    return [{"entity": entity_table(one.entity), "ops": _ops(one)} for one in alterations]


def lines_of(made: Sequence[AppliedChange], by: Event) -> list[Event]:
    """Return a line for each change, with its author."""
    return [{**_line_of(one), **by} for one in made]


def text_of(made: AppliedChange) -> str:
    """Return a change for people, with the old and the new value."""
    change, old = made
    if isinstance(change, SwitchChange):
        none, of = ("no switch", "") if change.table == "switches" else ("as configured", "pacing of ")
        return f"{of}{change.target}: {old or none} -> {change.mode or none}"
    before, after = (("none" if value is None else f"{value:.15g}") for value in (old, change.value))
    entity = ",".join(f"{kind}={DEFAULT if name is None else name}" for kind, name in change.entity)
    return f"{entity} {change.key}: {before} -> {after}"


def _line_of(made: AppliedChange) -> dict[str, Any]:
    change, old = made
    if isinstance(change, SwitchChange):
        return {"event": EVENTS[change.table], "target": change.target, "old": old, "new": change.mode}
    values = {"old": old, "new": change.value}
    numbers = {name: _number(value) if isinstance(value, float) else value for name, value in values.items()}
    return {"event": "changed", "entity": entity_table(change.entity), "key": change.key, **numbers}
