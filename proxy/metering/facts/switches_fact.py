"""The switches in force, in the format of column `switches` of table `states`."""

from __future__ import annotations

from typing import Any

import msgspec

from proxy.enforcement.switches import Switches, read_target
from proxy.metering.facts.names import Names
from quota.admin.messages import USER
from quota.entity import user_tag
from quota.names import kept_name


def switches_fact(switches: Switches, names: Names) -> str | None:
    """Return JSON: a list of objects with "mode", and "listener", or a list for each part of the entity, or nothing else for all.

    The list of a part has its name in the form of `dim_group` (hashed or null, by the setting); that of a default is empty.
    """
    if not switches:
        return None
    rows: list[dict[str, Any]] = []
    for text, mode in switches.table.items():
        target = read_target(text)
        row: dict[str, Any] = {"mode": mode.value}
        if target.listener is not None:
            row["listener"] = target.listener
        for kind, name in target.entity or ():
            row[kind] = [] if name is None else [names(user_tag(name) if kind == USER else kept_name(name))]
        rows.append(row)
    return msgspec.json.encode(rows).decode()
