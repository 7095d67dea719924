"""How groups are enforced, in the format of column `pacing` of table `states`."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.enforcement.pacing import Pacing, Pacings, read_paced_target
from proxy.metering.facts.names import Names
from quota.admin.messages import USER
from quota.entity import user_tag
from quota.names import kept_name


def pacing_fact(pacings: Pacings | None, names: Names) -> str | None:
    """Return JSON: a list of objects with "pacing", and "group", or a list for each part of the entity, or nothing else for all others.

    The first row is that of all others. A later row of a target replaces an earlier one. Names have the form of `dim_group`; the list of a
    default entity is empty. None: nothing is paced, and no pacing was set.
    """
    if pacings is None or not (pacings.paces or pacings.table):
        return None
    of_all = pacings.table.of_rule(None) or (Pacing.PACED if pacings.paces_others else Pacing.WINDOW)
    rows: list[dict[str, Any]] = [{"pacing": of_all.value}]
    rows += [{"pacing": pacing.value, "group": [names(name)]} for name, pacing in pacings.configured()]
    for text, pacing in pacings.table.table.items():
        target = read_paced_target(text)
        if target.group is not None:
            rows.append({"pacing": pacing.value, "group": [names(target.group)]})
        elif target.entity is not None:
            parts = {kind: [] if name is None else [_written(kind, name, names)] for kind, name in target.entity}
            rows.append({"pacing": pacing.value, **parts})
    return msgspec.json.encode(rows).decode()


def _written(kind: str, name: str, names: Names) -> str | None:
    return names(user_tag(name) if kind == USER else kept_name(name))
