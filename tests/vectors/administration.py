"""Replays describe and alter requests in both profiles."""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any

from quota.admin.describe import describe_kraft, describe_zookeeper
from quota.admin.kraft import Change, alter_kraft
from quota.admin.messages import Alteration, Component, Description, EntityKey, Op
from quota.admin.znodes import entity_of
from quota.admin.zookeeper import alter_zookeeper
from tests.support.processes.znode_tree import ZnodeTree
from tests.vectors.compare import Case, differences


def resolves(host: str) -> bool:
    """Whether a host is a literal address; names were not resolved when the vectors were made either."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def run_admin_kraft(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay every request against the quotas of a controller."""
    stored: dict[EntityKey, dict[str, float]] = {}
    for index, step in enumerate(case["steps"]):
        request = step["request"]
        if request["api"] == "describe":
            got = _description(describe_kraft(_components(request), stored, strict=request["strict"]))
        else:
            results, changes = alter_kraft(_alterations(request), stored, resolves)
            if not request["validate_only"]:
                _apply(stored, changes)
            got = {"results": _sorted([_result(*result) for result in results]), "records": len(changes)}
            got["state_after"] = _sorted([{"entity": _listed(entity), "values": values} for entity, values in stored.items()])
        yield from differences(f"step {index}", _as_sets(step), got)


def run_admin_zookeeper(case: Case, columns: list[str], lazy: bool) -> Iterator[str]:
    """Replay every request against a tree of nodes."""
    tree = ZnodeTree()
    for index, step in enumerate(case["steps"]):
        request = step["request"]
        if request["api"] == "describe":
            got = _description(describe_zookeeper(_components(request), _stored(tree), strict=request["strict"]))
        else:
            tree.notifications.clear()
            results = alter_zookeeper(_alterations(request), tree, resolves, validate_only=request["validate_only"])
            got = {"results": _sorted([_result(*result) for result in results])}
            got |= {"znodes_after": tree.with_data(), "change_notifications": list(tree.notifications)}
        yield from differences(f"step {index}", _as_sets(step), got)


def _apply(stored: dict[EntityKey, dict[str, float]], changes: list[Change]) -> None:
    for entity, key, value in changes:
        if value is not None:
            stored.setdefault(entity, {})[key] = value
        elif entity in stored:
            stored[entity].pop(key, None)
            if not stored[entity]:
                del stored[entity]


def _stored(tree: ZnodeTree) -> dict[EntityKey, Mapping[str, float]]:
    nodes = {entity_of(path): config for path, config in tree.configs()}
    return {entity: {key: float(value) for key, value in config.items()} for entity, config in nodes.items() if entity is not None}


def _components(request: dict[str, Any]) -> list[Component]:
    return [Component(*component) for component in request["components"]]


def _alterations(request: dict[str, Any]) -> list[Alteration]:
    entries = request["entries"]
    return [Alteration([(kind, name) for kind, name in entry["entity"]], [Op(*op) for op in entry["ops"]]) for entry in entries]


def _description(found: Description) -> dict[str, Any]:
    entries = found.entries
    shown = (
        None if entries is None else _sorted([{"entity": _listed(entity), "values": dict(values)} for entity, values in entries.items()])
    )
    return {"error_code": found.error_code, "error_message": found.error_message, "entries": shown}


def _result(entity: EntityKey, code: int, message: str | None) -> dict[str, Any]:
    return {"entity": _listed(entity), "error_code": code, "error_message": message}


def _listed(entity: EntityKey) -> list[list[str | None]]:
    return [list(part) for part in entity]


def _sorted(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries, key=lambda entry: repr(entry["entity"]))


def _as_sets(step: dict[str, Any]) -> dict[str, Any]:
    """Return the values as sets, since their order is not specified."""
    lists = ("results", "state_after", "entries")
    return step | {name: _sorted(step[name]) for name in lists if isinstance(step.get(name), list)}
