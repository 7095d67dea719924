"""Which decisions of a group the enforcement switches allow: enforced, observed, or none.

A switch applies to all clients, a listener or an entity, and the most specific one applies to a client. The members of a group may have
different switches, and a row does not name the member. The question is therefore whether *some* member may have been enforced, observed or
switched off.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

ENFORCE: Final = "enforce"
OBSERVE: Final = "observe"
OFF: Final = "off"
CONNECTION: Final = "Connection"
GROUP_COLUMNS: Final = ["group_ref", "quota_type", "scope", "listener", "tag_user", "tag_client_id", "tag_ip", "tags"]
"""Columns of `dim_group` that `Switched.possible` needs."""

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_PRECEDENCE: Final = ("NN", "ND", "N-", "DN", "DD", "D-", "-N", "-D")
"""Kafka's precedence of entities. The letters stand for user and client-id: N named, D default, - not part of the entity."""

_Names = tuple[str | None, str | None]


class Switched:
    """The modes in force from one row of `states` on.

    Args:
        mode: the mode of the configuration; every mode but `observe` enforces.
        switches: the column `switches` of the row, as JSON.
    """

    def __init__(self, mode: str, switches: str | None) -> None:
        self._base = OBSERVE if mode == OBSERVE else ENFORCE
        self._listeners: dict[str, str] = {}
        self._ips: dict[str | None, set[str]] = {}  # hidden names are all None, so one key may have several modes
        self._default_ip: str | None = None
        self._entities: dict[str, dict[_Names, set[str]]] = {}
        for row in [] if switches is None else msgspec.json.decode(switches):
            self._add(row)

    @property
    def is_plain(self) -> bool:
        """Whether the configuration's mode applies to every client."""
        return not (self._listeners or self._ips or self._entities or self._default_ip)

    @property
    def modes(self) -> frozenset[str]:
        """Every mode that applies to some client."""
        named = [self._ips.values(), *(entities.values() for entities in self._entities.values())]
        held = {mode for modes in named for one in modes for mode in one}
        return frozenset({self._base, *self._listeners.values(), *held, *filter(None, [self._default_ip])})

    def possible(self, group: Mapping[str, Any]) -> frozenset[str]:
        """Return the modes that members of a group may have; `group` is a row of `dim_group`."""
        if group["quota_type"] == CONNECTION:
            return frozenset(self._of_connections(group))
        user, client_id = (None, None) if group["tags"] else (group["tag_user"] or None, group["tag_client_id"] or None)
        found: set[str] = set()
        for level in _PRECEDENCE:
            if self._add_level(level, user, client_id, found):
                return frozenset(found)
        return frozenset({*found, *self._listeners.values(), self._base})

    def _add(self, row: Mapping[str, Any]) -> None:
        mode = row["mode"]
        if "listener" in row:
            self._listeners[row["listener"]] = mode
        elif _IP in row:
            if row[_IP]:
                self._ips.setdefault(row[_IP][0], set()).add(mode)
            else:
                self._default_ip = mode
        elif _USER in row or _CLIENT_ID in row:
            parts = (row.get(_USER), row.get(_CLIENT_ID))
            level = "".join("-" if part is None else "N" if part else "D" for part in parts)
            names = (parts[0][0] if parts[0] else None, parts[1][0] if parts[1] else None)
            self._entities.setdefault(level, {}).setdefault(names, set()).add(mode)
        else:
            self._base = mode

    def _add_level(self, level: str, user: str | None, client_id: str | None, found: set[str]) -> bool:
        """Add the modes of one precedence level to `found`. Return True when they cover every member. A None name is any, or hidden."""
        named = self._entities.get(level)
        if not named:
            return False
        wanted = (user if level[0] == "N" else None, client_id if level[1] == "N" else None)
        is_fixed = all(name is not None for name, part in zip(wanted, level, strict=True) if part == "N")
        if is_fixed and wanted in named:
            found |= named[wanted]
            return True
        for names, modes in named.items():
            pairs = [(name, want) for name, want, part in zip(names, wanted, level, strict=True) if part == "N"]
            if all(name is None or want is None or name == want for name, want in pairs):
                found |= modes
        return False

    def _of_connections(self, group: Mapping[str, Any]) -> Sequence[str]:
        if group["scope"] == "listener":
            return [self._listeners.get(group["listener"], self._base)]
        elsewhere = [*self._listeners.values(), self._base]
        if group["scope"] != _IP:
            return elsewhere
        address = group["tag_ip"]
        if address is not None and address in self._ips:
            return list(self._ips[address])
        hidden = [mode for name, modes in self._ips.items() if name is None or address is None for mode in modes]
        return [*hidden, self._default_ip] if self._default_ip is not None else [*hidden, *elsewhere]
