"""The content of ZooKeeper's nodes, byte for byte as Kafka's brokers write it.

Source: Kafka 3.9 `ConfigEntityZNode`, `ConfigEntityChangeNotificationZNode`, `ZkData`; java.util `Properties`, `ConcurrentHashMap`.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from proxy.quota_store.store import VALUES, Table
from quota.admin.keys import ValueType, keys_of
from quota.admin.messages import EntityKey
from quota.admin.znodes import entity_of, java_double

CONFIG: Final = "/config"
CHANGES: Final = "/config/changes"
CHANGE_PREFIX: Final = "config_change_"
FOLDERS: Final = ("users", "clients", "ips")
SWITCHES: Final = "/sluice/switches"

_CHANGE: Final = re.compile(rf"{CHANGE_PREFIX}\d{{10}}", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,20}")
_DOUBLE: Final = re.compile(r"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?[dDfF]?|[+-]?Infinity")
_JAVA_CAPACITY: Final = 16


class BadNode(Exception):
    """A node with content that Kafka does not write; the text has the problem, never the content."""


class Reading(NamedTuple):
    """The valid and the invalid quotas of a node."""

    values: Mapping[str, float]
    wrong: Mapping[str, str]
    """Keys with invalid values, and the reasons."""


def read_config(data: bytes) -> dict[str, str]:
    """Return the configuration in a node, keys and values as text; empty if the node has no data.

    Raises:
        BadNode: Kafka does not write such data.
    """
    config = _table(data, "config")
    if not all(isinstance(value, str) for value in config.values()):
        raise BadNode('has a value in "config" that is no text')
    return config


def read_values(config: Mapping[str, str], entity: EntityKey) -> Reading:
    """Return the quotas in the configuration of a node. Other keys, such as credentials, are ignored."""
    values: dict[str, float] = {}
    wrong: dict[str, str] = {}
    for key, kind in keys_of(entity).items():
        if key in config:
            try:
                values[key] = _number(config[key], kind)
            except ValueError as error:
                wrong[key] = str(error)
    return Reading(values, wrong)


def _number(text: str, kind: ValueType) -> float:
    if kind is ValueType.DOUBLE:
        if _DOUBLE.fullmatch(text) is None:
            raise ValueError("is not a number")
        value = float(text.rstrip("dDfF").replace("Infinity", "inf"))
        if math.isinf(value) and "Infinity" not in text:
            raise ValueError("is too large for a double")
        return value
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("is not a whole number")
    largest = 2**63 if kind is ValueType.LONG else 2**31
    if not -largest <= int(text) < largest:
        raise ValueError(f"is too large for a {kind.name}")
    return float(int(text))


def text_of(key: str, value: float, entity: EntityKey) -> str:
    """Return the text of a value, as a broker writes it."""
    kind = keys_of(entity).get(key, ValueType.DOUBLE)
    if not kind.is_whole:
        return java_double(value)
    largest = 2**63 - 1 if kind is ValueType.LONG else 2**31 - 1
    return str(max(-largest - 1, min(int(value), largest)))


def write_config(config: Mapping[str, str]) -> bytes:
    """Return the data of a node with this configuration, in the key order of a broker's hash table."""
    return msgspec.json.encode({"version": 1, "config": {key: config[key] for key in java_order(config)}})


def java_order(keys: Iterable[str]) -> list[str]:
    """Return keys in the iteration order of a `java.util.Properties`, which is the order of its buckets."""
    names = list(keys)
    capacity = _JAVA_CAPACITY
    while len(names) >= capacity * 3 // 4:
        capacity *= 2
    return sorted(names, key=lambda name: _spread(name) % capacity)


def _spread(name: str) -> int:
    code = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return (code ^ (code >> 16)) & 0x7FFFFFFF


def write_change(path: str) -> bytes:
    """Return a change notification, version 2, for the node at `path` below /config."""
    return msgspec.json.encode({"version": 2, "entity_path": path})


def read_change(data: bytes) -> str | None:
    """Return the path below /config in a change notification, version 1 or 2; None: it is not about quotas."""
    try:
        change = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    if not isinstance(change, dict):
        return None
    path = change.get("entity_path")
    if change.get("version") == 1:
        path = f"{change.get('entity_type')}/{change.get('entity_name')}" if change.get("entity_type") == "clients" else None
    if not isinstance(path, str) or entity_of(path) is None or any(part in ("", ".", "..") for part in path.split("/")):
        return None
    return path


def is_change(name: str) -> bool:
    """Whether the name is that of a change notification; a greater name is a newer notification."""
    return _CHANGE.fullmatch(name) is not None


def write_switches(tables: Mapping[Table, Mapping[str, str]]) -> bytes:
    """Return the data of the node with all switches and pacings; an empty table of pacings is left out, as an older Sluice writes it."""
    kept = {name: dict(sorted(table.items())) for name, table in tables.items() if table or name == "switches"}
    return msgspec.json.encode({"version": 1, **kept})


def read_switches(data: bytes) -> dict[Table, dict[str, str]]:
    """Return all switches and pacings, as tables by name.

    Raises:
        BadNode: the data is invalid.
    """
    tables: dict[Table, dict[str, str]] = {name: _table(data, name, or_empty=name != "switches") for name in VALUES}
    for name, table in tables.items():
        if not all(isinstance(mode, str) for mode in table.values()):
            raise BadNode(f'has no table "{name}"')
    return tables


def _table(data: bytes, key: str, *, or_empty: bool = False) -> dict[str, Any]:
    """Return the object under `key` of a node's JSON; empty if the node has no data, and with `or_empty` if it has no such key."""
    if not data:
        return {}
    try:
        node = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, ValueError):
        raise BadNode("is not JSON") from None
    table = node.get(key, {} if or_empty else None) if isinstance(node, dict) else None
    if not isinstance(table, dict):
        raise BadNode(f'has no table "{key}"')
    return table
