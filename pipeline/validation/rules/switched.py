"""What the switches of enforcement let a group's decisions be: waited for, not waited for, or not taken at all.

A switch is for all, a listener or an entity, and the most specific one holds for a client. A group may have clients of several kinds, and
a row does not say which of them it was: so what is asked is whether *some* member may have been enforced, observed or switched off.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

ENFORCE: Final = "enforce"
OBSERVE: Final = "observe"
OFF: Final = "off"
CONNECTION: Final = "Connection"
GROUP_COLUMNS: Final = ["group_ref", "quota_type", "scope", "listener", "tag_user", "tag_client_id", "tag_ip", "tags"]
"""Of `dim_group`, for `Switched.possible`."""

_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_PRECEDENCE: Final = ("NN", "ND", "N-", "DN", "DD", "D-", "-N", "-D")
"""Kafka's order of entities: user and client-id each named, default, or not looked at."""

_Names = tuple[str | None, str | None]


class Switched:
    """The modes in force from one row of `states` on.

    Args:
        mode: of the configuration: everything but `observe` enforces.
        switches: the column of that name.
    """

    def __init__(self, mode: str, switches: str | None) -> None:
        self._base = OBSERVE if mode == OBSERVE else ENFORCE
        self._listeners: dict[str, str] = {}
        self._ips: dict[str | None, set[str]] = {}  # hidden names are all None: several modes stand for them
        self._default_ip: str | None = None
        self._entities: dict[str, dict[_Names, set[str]]] = {}
        for row in [] if switches is None else msgspec.json.decode(switches):
            self._add(row)

    @property
    def is_plain(self) -> bool:
        """Whether the configuration's mode holds for every client."""
        return not (self._listeners or self._ips or self._entities or self._default_ip)

    @property
    def modes(self) -> frozenset[str]:
        """Every mode that applies to a client."""
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
        """Add what the switches of one level say of a group; True when they cover every member. A name that is None is free, or hidden."""
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
