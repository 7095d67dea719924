"""Switches of enforcement (KIP-13): for all, a listener or an entity, and their precedence.

A target is written `all`, `listener:NAME` or `entity:` and Kafka's parts of an entity: `entity:user=alice`,
`entity:user=alice,client-id=etl`, `entity:client-id=<default>`, `entity:ip=192.0.2.7`. Names are percent-encoded as in Kafka's metrics and
znodes (`%2C` is a comma), so a client whose name is `<default>` is `%3Cdefault%3E`; characters that need no encoding may be unencoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import EllipsisType
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from proxy.base.host_port import ip_of
from proxy.base.printable import printable
from proxy.base.units import shown
from quota.admin.messages import CLIENT_ID, IP, USER, EntityKey, entity_key
from quota.connections.client_address import plain_address
from quota.entity import DEFAULT, sanitize

ALL: Final = "all"
LISTENER: Final = "listener:"
ENTITY: Final = "entity:"
SWITCHES_MAX: Final = 1_000
"""Maximum number of switches; a client's switch is searched once per change, never per request."""
NAME_CHARS_MAX: Final = 4_096
TARGET_REMEDY: Final = "write all, listener:NAME, entity:user=NAME, entity:client-id=NAME, both with a comma between, or entity:ip=ADDRESS"

_LISTENER_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_ORDER: Final = {USER: 0, CLIENT_ID: 1, IP: 2}


class SwitchError(Exception):
    """An invalid target or mode; the text says what is wrong and what to write instead."""


class SwitchMode(Enum):
    """How quotas are treated where a switch applies."""

    ENFORCE = "enforce"  # as configured; where the configuration only observes, responses are delayed
    OBSERVE = "observe"  # measured and metered, without delays
    OFF = "off"  # not recorded, as without a quota


class Target(NamedTuple):
    """The target of a switch: a listener, an entity, or with neither of them everything. Its text is the form that stores keep."""

    listener: str | None = None
    entity: EntityKey | None = None
    """Parts sorted by type; None as a name is the default entity."""

    def __str__(self) -> str:
        if self.listener is not None:
            return LISTENER + self.listener
        if self.entity is None:
            return ALL
        parts = sorted(self.entity, key=lambda part: _ORDER[part[0]])
        return ENTITY + ",".join(f"{kind}={_written(kind, name)}" for kind, name in parts)


def read_target(text: str) -> Target:
    """Parse a target.

    Raises:
        SwitchError: the text is not a target.
    """
    if text == ALL:
        return Target()
    if text.startswith(LISTENER):
        name = text.removeprefix(LISTENER)
        if _LISTENER_NAME.fullmatch(name) is None:
            raise SwitchError(f"{shown(name)} is not the name of a listener; write letters, digits, dots, dashes or underscores")
        return Target(listener=name)
    if text.startswith(ENTITY):
        return Target(entity=_read_entity(text.removeprefix(ENTITY)))
    raise SwitchError(f"{shown(text)} is nothing to switch; {TARGET_REMEDY}")


def read_mode(text: str) -> SwitchMode:
    """Parse a mode.

    Raises:
        SwitchError: the text is not a mode.
    """
    try:
        return SwitchMode(text)
    except ValueError:
        raise SwitchError(f"{shown(text)} is no mode of a switch; write enforce, observe or off") from None


def entity_target(entity: EntityKey) -> Target:
    """Return the target of an entity given by its parts.

    Raises:
        SwitchError: quotas do not exist for such an entity.
    """
    kinds = {kind for kind, _ in entity}
    if not entity or not (kinds <= {USER, CLIENT_ID} or kinds == {IP}):
        raise SwitchError(f"an entity is a user, a client-id, both, or an ip alone; {TARGET_REMEDY}")
    for kind, name in entity:
        _check_name(kind, name)
    return Target(entity=entity_key([(kind, plain_address(name) if kind == IP and name else name) for kind, name in entity]))


_Part = str | EllipsisType | None
"""A name, None for the default entity, `...` when the entity has no such part."""


class Switches:
    """All switches. The most specific applies: an entity's, then the listener's, then that of all.

    Of a client's entities the first with a switch applies, in Kafka's order of quotas: user and client-id, user and
    default client-id, user, default user and client-id, default user and default client-id, default user, client-id, default client-id.

    Attributes:
        problems: entries of the store that are not switches; they are ignored.
    """

    __slots__ = ("_entities", "_ips", "_listeners", "_of_all", "_table", "problems")

    def __init__(self, table: Mapping[str, str] | None = None) -> None:
        self._of_all: SwitchMode | None = None
        self._listeners: dict[str, SwitchMode] = {}
        self._entities: dict[tuple[_Part, _Part], SwitchMode] = {}
        self._ips: dict[str | None, SwitchMode] = {}
        self._table: dict[str, SwitchMode] = {}
        self.problems: list[str] = []
        for text, mode in (table or {}).items():
            try:
                self._add(read_target(text), read_mode(mode))
            except SwitchError as error:
                self.problems.append(f"{printable(text, 128)}: {error}")
        self._table = dict(sorted(self._table.items(), key=_breadth))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Switches) and self._table == other._table

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._table)

    @property
    def table(self) -> Mapping[str, SwitchMode]:
        """Every switch by the text of its target, the broadest first."""
        return self._table

    def of_client(self, listener: str, user: str, client_id: str) -> SwitchMode | None:
        """Return the mode for a client's bytes, time and mutations; None: as configured."""
        entities = self._entities
        if entities:
            for key in _keys(user, client_id):
                mode = entities.get(key)
                if mode is not None:
                    return mode
        return self.of_listener(listener)

    def of_address(self, listener: str, address: str) -> SwitchMode | None:
        """Return the mode for the connections of an address; None: as configured."""
        if self._ips:
            mode = self._ips.get(address) or self._ips.get(None)
            if mode is not None:
                return mode
        return self.of_listener(listener)

    def of_listener(self, listener: str) -> SwitchMode | None:
        """Return the mode for a listener as a whole."""
        return self._listeners.get(listener, self._of_all)

    @property
    def of_all(self) -> SwitchMode | None:
        """Return the mode where no more specific switch applies."""
        return self._of_all

    def _add(self, target: Target, mode: SwitchMode) -> None:
        if len(self._table) >= SWITCHES_MAX:
            raise SwitchError(f"more than {SWITCHES_MAX} switches; remove some, or switch a listener or a default entity")
        if target.listener is not None:
            self._listeners[target.listener] = mode
        elif target.entity is None:
            self._of_all = mode
        else:
            parts = dict(target.entity)
            if IP in parts:
                self._ips[parts[IP]] = mode
            else:
                self._entities[parts.get(USER, ...), parts.get(CLIENT_ID, ...)] = mode
        self._table[str(target)] = mode


def _breadth(switch: tuple[str, SwitchMode]) -> tuple[int, str]:
    text = switch[0]
    return (0 if text == ALL else 1 if text.startswith(LISTENER) else 2), text


def _keys(user: str, client_id: str) -> tuple[tuple[_Part, _Part], ...]:
    by_user = ((user, client_id), (user, None), (user, ...))
    by_default_user = ((None, client_id), (None, None), (None, ...))
    return (*by_user, *by_default_user, (..., client_id), (..., None))


def _read_entity(text: str) -> EntityKey:
    parts: dict[str, str | None] = {}
    for part in text.split(","):
        kind, equals, written = part.partition("=")
        if not equals or kind not in _ORDER:
            raise SwitchError(f"{shown(part)} is no part of an entity; {TARGET_REMEDY}")
        if kind in parts:
            raise SwitchError(f"{shown(text)} names {kind} twice; {TARGET_REMEDY}")
        parts[kind] = _read_name(written)
    target = entity_target(tuple(parts.items()))
    assert target.entity is not None
    return target.entity


def _read_name(written: str) -> str | None:
    if written == DEFAULT:
        return None
    if _BAD_ESCAPE.search(written) is not None:
        raise SwitchError(f"{shown(written)} has a % without two hexadecimal digits; write %25 for the sign itself")
    try:
        return unquote_to_bytes(written).decode("utf-8")
    except UnicodeDecodeError:
        raise SwitchError(f"{shown(written)} is not UTF-8; write the bytes of the name in UTF-8") from None


def _check_name(kind: str, name: str | None) -> None:
    if name is None:
        return
    if not 0 < len(name) <= NAME_CHARS_MAX:
        raise SwitchError(f"a name has 1 to {NAME_CHARS_MAX} characters; for all others write {kind}={DEFAULT}")
    if kind == IP and ip_of(plain_address(name)) is None:
        raise SwitchError(f"{shown(name)} is not an IP address; write one such as 192.0.2.7 or 2001:db8::7")


def _written(kind: str, name: str | None) -> str:
    if name is None:
        return DEFAULT
    return name if kind == IP else sanitize(name)
