"""Parses the text of `quotas.toml` into the content of a store. Pure; reports all problems at once."""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from proxy.base.units import SIZE_REMEDY, shown
from proxy.config.problem import ConfigProblems, with_lines
from proxy.config.toml_reader import Place, Reader, parse_toml, read_struct
from proxy.config.values import read_client_host, read_rate
from proxy.enforcement.pacing import read_paced_target
from proxy.enforcement.switches import SwitchError, read_target
from proxy.quota_store.store import MODES, PACINGS, StoreContent
from quota.admin.keys import CLIENT_KEYS, IP_KEYS
from quota.admin.kraft import FRACTION
from quota.admin.messages import CLIENT_ID, IP, USER, EntityKey
from quota.entity import DEFAULT

NAME_BYTES_MAX: Final = 32_767
"""Maximum length of a name in the protocol, in bytes: a string has a 16-bit length."""

_NAME_REMEDY: Final = f'a name, or "{DEFAULT}" for clients without a quota of their own'


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{shown(value)} is not a name")
    if len(value.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"is longer than {NAME_BYTES_MAX} bytes")
    return value


def _read_ip(value: object) -> str:
    return DEFAULT if value == DEFAULT else read_client_host(value)


def _read_connection_rate(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{shown(value)} is not a whole number")
    if not 0 <= value < 2**31:
        raise ValueError(f"{shown(value)} is not from 0 to 2147483647")
    return float(value)


def _read_byte_rate(value: object) -> float:
    """Return bytes per second. A value that Kafka accepts as a whole number is accepted: clients may have set 1235.0000001."""
    if isinstance(value, float) and value > 0 and 0.0 < value % 1.0 <= FRACTION:
        return value
    return read_rate(value)


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"{shown(value)} is not a number")
    if value <= 0:
        raise ValueError(f"{shown(value)} is not above 0")
    return float(value)


def _read_mode(value: object) -> str:
    if value not in MODES:
        raise ValueError(f"{shown(value)} is not valid")
    return str(value)


def _read_pacing(value: object) -> str:
    if value not in PACINGS:
        raise ValueError(f"{shown(value)} is not valid")
    return str(value)


def _read_target(value: object) -> str:
    """Return a target of a switch in the canonical form of stores."""
    return _canonical(read_target, value)


def _read_paced_target(value: object) -> str:
    """Return a target of a pacing in the canonical form of stores."""
    return _canonical(read_paced_target, value)


def _canonical(read: Callable[[str], object], value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a text")
    try:
        return str(read(value))
    except SwitchError as error:
        raise ValueError(str(error).partition("; ")[0]) from None


_Name = Annotated[str | None, Reader(_read_name, _NAME_REMEDY)]
_Rate = Annotated[float | None, Reader(_read_byte_rate, f"bytes per second: {SIZE_REMEDY}")]
_Number = Annotated[float | None, Reader(_read_number, "a number above 0, such as 50.0")]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    user: _Name = None
    client_id: _Name = msgspec.field(name="client-id", default=None)
    literal_user: bool = msgspec.field(name="literal-user", default=False)
    literal_client_id: bool = msgspec.field(name="literal-client-id", default=False)
    ip: Annotated[str | None, Reader(_read_ip, f'an IP address, a host name or "{DEFAULT}"')] = None
    producer_byte_rate: _Rate = None
    consumer_byte_rate: _Rate = None
    request_percentage: _Number = None
    controller_mutation_rate: _Number = None
    connection_creation_rate: Annotated[float | None, Reader(_read_connection_rate, "connections per second, such as 20")] = None


class _Switch(msgspec.Struct, frozen=True, kw_only=True):
    target: Annotated[str, Reader(_read_target, '"all", "listener:NAME" or "entity:user=NAME"')]
    mode: Annotated[str, Reader(_read_mode, '"enforce", "observe" or "off"')]


class _Pacing(msgspec.Struct, frozen=True, kw_only=True):
    target: Annotated[str, Reader(_read_paced_target, '"all", "group:NAME" or "entity:user=NAME"')]
    pacing: Annotated[str, Reader(_read_pacing, '"window" or "paced"')]


_LITERALS: Final = {"literal-user": USER, "literal-client-id": CLIENT_ID}


def read_quota_text(data: bytes, file: str, *, any_sign: bool = False) -> StoreContent:
    """Return the quotas and switches in `data`, the bytes of `file`.

    Args:
        any_sign: accept values of 0 and below, since the API may have set them (the ZooKeeper profile).

    Raises:
        ConfigProblems: every problem of the file; no part of it may be used.
    """
    place = Place(file, "", [], {})
    tables = parse_toml(data, file)
    for key in [key for key in tables if key not in ("quota", "switch", "pacing")]:
        place.add(key, "is not known here", "write every quota under [[quota]]")
    quotas = _read_quotas(_rows(tables, "quota", place), place, any_sign=any_sign)
    switches = _read_targets("switch", _Switch, "mode", _rows(tables, "switch", place), place)
    pacing = _read_targets("pacing", _Pacing, "pacing", _rows(tables, "pacing", place), place)
    if place.problems:
        raise ConfigProblems(with_lines(place.problems, data, file))
    return StoreContent(MappingProxyType(quotas), MappingProxyType(switches), MappingProxyType(pacing))


def _rows(tables: dict[str, Any], key: str, place: Place) -> list[dict[str, Any]]:
    rows = tables.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        place.add(key, "is not a list of tables", f"write [[{key}]]")
        return []
    return rows


def _read_quotas(rows: list[dict[str, Any]], place: Place, *, any_sign: bool) -> dict[EntityKey, Mapping[str, float]]:
    quotas: dict[EntityKey, Mapping[str, float]] = {}
    first_at: dict[EntityKey, int] = {}
    for at, row in enumerate(rows, 1):
        here = place.inside(f"quota[{at}]")
        signed = _signed(row) if any_sign else {}
        read = read_struct(_Row, {key: value for key, value in row.items() if key not in signed}, here)
        if read is None or not _is_sound(row, here):
            continue
        entity = _entity(read)
        first = first_at.setdefault(entity, at)
        if first == at:
            quotas[entity] = MappingProxyType(_values(read) | signed)
        else:
            here.add(entity[0][0], f"has the same entity as quota[{first}]", "write one [[quota]] for both")
    return quotas


def _signed(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the values of a row that are 0 or below and that Kafka with ZooKeeper would keep."""
    keys = {key: row[key] for key in (*CLIENT_KEYS, *IP_KEYS) if key in row}
    return {
        key: float(value)
        for key, value in keys.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value <= 0
    }


def _read_targets(kind: str, row_type: type[_Switch | _Pacing], value_key: str, rows: list[dict[str, Any]], place: Place) -> dict[str, str]:
    """Return the values of a table by target."""
    values: dict[str, str] = {}
    for at, row in enumerate(rows, 1):
        here = place.inside(f"{kind}[{at}]")
        read = read_struct(row_type, row, here)
        if read is None:
            continue
        if read.target in values:
            here.add("target", f"{shown(read.target)} is defined above", "write it once")
        values[read.target] = getattr(read, value_key)
    return values


def _is_sound(written: Mapping[str, Any], place: Place) -> bool:
    entity = [key for key in (USER, CLIENT_ID, IP) if key in written]
    possible, others = (tuple(IP_KEYS), tuple(CLIENT_KEYS)) if IP in entity else (tuple(CLIENT_KEYS), tuple(IP_KEYS))
    misplaced = [key for key in others if key in written]
    idle = [key for key, kind in _LITERALS.items() if key in written and written.get(kind) != DEFAULT]
    if not entity:
        place.add(USER, "is missing", "write user, client-id, both, or ip alone")
    elif IP in entity and len(entity) > 1:
        place.add(IP, f"cannot stand beside {entity[0]}", "write it in a [[quota]] of its own")
    elif idle:
        place.add(idle[0], f'is only for who is really called "{DEFAULT}"', "leave it out")
    elif misplaced and IP in entity:
        place.add(misplaced[0], "does not apply to an ip", "write user or client-id instead of ip")
    elif misplaced:
        place.add(misplaced[0], f"does not apply to a {entity[0]}", "write ip instead")
    elif not any(key in written for key in possible):
        place.add(possible[0], "is missing", f"write at least one of {', '.join(possible)}" if len(possible) > 1 else "write it")
    else:
        return True
    return False


def _entity(row: _Row) -> EntityKey:
    """Return the entity of a row; its parts are in the order of their types."""
    if row.ip is not None:
        return ((IP, None if row.ip == DEFAULT else row.ip),)
    parts = ((CLIENT_ID, row.client_id, row.literal_client_id), (USER, row.user, row.literal_user))
    return tuple((kind, None if name == DEFAULT and not literal else name) for kind, name, literal in parts if name is not None)


def _values(row: _Row) -> dict[str, float]:
    written = {key: getattr(row, key) for key in (*CLIENT_KEYS, *IP_KEYS)}
    return {key: value for key, value in written.items() if value is not None}
