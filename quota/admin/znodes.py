"""Quotas as ZooKeeper keeps them: one node per entity, with its values as strings.

Source: Kafka 3.8 `ConfigEntityZNode`, `AdminZkClient`.
"""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from quota.admin.messages import CLIENT_ID, IP, USER, EntityKey
from quota.entity import DEFAULT, desanitize, sanitize
from quota.errors import SanitizedNameError

_FOLDERS: Final = {CLIENT_ID: "clients", IP: "ips"}
_TYPES: Final = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_SMALLEST_PLAIN, _SMALLEST_SCIENTIFIC = 1e-3, 1e7
Config = Mapping[str, str]


def path_of(entity: EntityKey) -> str:
    """Return the path of an entity's node below /config. Notifications contain the same path."""
    parts = dict(entity)
    if USER in parts:
        user = f"users/{_node(parts[USER])}"
        return f"{user}/clients/{_node(parts[CLIENT_ID])}" if CLIENT_ID in parts else user
    ((kind, name),) = parts.items()
    return f"{_FOLDERS[kind]}/{_node(name)}"


def entity_of(path: str) -> EntityKey | None:
    """Return the entity of a node below /config; None when the path does not name an entity."""
    match path.split("/"):
        case ["users", user, "clients", client]:
            names = {CLIENT_ID: client, USER: user}
        case [folder, name] if folder in _TYPES:
            names = {_TYPES[folder]: name}
        case _:
            return None
    try:
        return tuple(sorted((kind, None if name == DEFAULT else desanitize(name)) for kind, name in names.items()))
    except SanitizedNameError:
        return None


def _node(name: str | None) -> str:
    return DEFAULT if name is None else sanitize(name)


def java_double(value: float) -> str:
    """Format a double as Java does: `12.34`, `1.0E-7`, `-0.0`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or _SMALLEST_PLAIN <= abs(value) < _SMALLEST_SCIENTIFIC:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = Decimal(repr(value)).as_tuple()
    texts = "".join(map(str, digits)).rstrip("0") or "0"
    exponent = Decimal(repr(value)).adjusted()
    return f"{'-' if sign else ''}{texts[0]}.{texts[1:] or '0'}E{exponent}"
