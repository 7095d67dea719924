"""The text of `quotas.toml` as a table: pure, all problems at once."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from proxy.config_problem import ConfigProblems
from proxy.config_read import Place, Reader, parse_toml, read_struct
from proxy.config_values import read_client_host, read_rate
from proxy.units import SIZE_REMEDY, shown
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType

QuotaTable = Mapping[ClientQuotaType, Mapping[ClientQuotaEntity, float]]
"""Every quota: by type, by entity, in units per second. Nobody changes one; a new one takes its place."""

NAME_BYTES_MAX: Final = 32_767
"""The longest name that the protocol carries (a string with a 16-bit length)."""


class QuotaContent(NamedTuple):
    """What a quota file says."""

    table: QuotaTable
    connection_rates: Mapping[str, int] = MappingProxyType({})
    """Connections per second of an IP address or host name, or of `<default>`."""

    @property
    def entities(self) -> int:
        """How many users, client-ids, pairs of both and addresses have a quota."""
        return len({entity for table in self.table.values() for entity in table}) + len(self.connection_rates)


_NAME_REMEDY: Final = f'a name, or "{DEFAULT}" for whoever has no quota of their own'


def _read_name(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{shown(value)} is not a name")
    if len(value.encode()) > NAME_BYTES_MAX:
        raise ValueError(f"is longer than {NAME_BYTES_MAX} bytes")
    return value


def _read_ip(value: object) -> str:
    return DEFAULT if value == DEFAULT else read_client_host(value)


def _read_connection_rate(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{shown(value)} is not a whole number")
    if not 0 <= value < 2**31:
        raise ValueError(f"{shown(value)} is not from 0 to 2147483647")
    return value


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{shown(value)} is not a finite number")
    if value <= 0:
        raise ValueError(f"{shown(value)} is not above 0")
    return float(value)


_Name = Annotated[str | None, Reader(_read_name, _NAME_REMEDY)]
_Rate = Annotated[float | None, Reader(read_rate, f"bytes per second: {SIZE_REMEDY}")]
_Number = Annotated[float | None, Reader(_read_number, "a number above 0, such as 50.0")]


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    user: _Name = None
    client_id: _Name = msgspec.field(name="client-id", default=None)
    ip: Annotated[str | None, Reader(_read_ip, f'an IP address, a host name or "{DEFAULT}"')] = None
    producer_byte_rate: _Rate = None
    consumer_byte_rate: _Rate = None
    request_percentage: _Number = None
    controller_mutation_rate: _Number = None
    connection_creation_rate: Annotated[int | None, Reader(_read_connection_rate, "connections per second, such as 20")] = None


_CLIENT_KEYS: Final = {
    "producer_byte_rate": ClientQuotaType.PRODUCE,
    "consumer_byte_rate": ClientQuotaType.FETCH,
    "request_percentage": ClientQuotaType.REQUEST,
    "controller_mutation_rate": ClientQuotaType.CONTROLLER_MUTATION,
}
"""What Kafka allows for users and client-ids, and ..."""
_IP_KEYS: Final = ("connection_creation_rate",)
"""... for IP addresses."""


def empty_table() -> QuotaTable:
    """Return the table of nobody's quotas."""
    return _frozen({quota_type: {} for quota_type in _CLIENT_KEYS.values()})


def read_quotas(data: bytes, file: str) -> QuotaContent:
    """Return the quotas in `data`, the content of `file`.

    Raises:
        ConfigProblems: all that is wrong with it; then no part of it may be used.
    """
    place = Place(file, "", [], {})
    tables: dict[ClientQuotaType, dict[ClientQuotaEntity, float]] = {quota_type: {} for quota_type in _CLIENT_KEYS.values()}
    connection_rates: dict[str, int] = {}
    seen: dict[tuple[str | None, ...], int] = {}
    for at, row in enumerate(_rows(parse_toml(data, file), place), 1):
        here = place.inside(f"quota[{at}]")
        read = read_struct(_Row, row, here)
        if read is not None and _is_sound(row, here) and _is_first(read, at, seen, here):
            _enter(read, tables, connection_rates)
    if place.problems:
        raise ConfigProblems(place.problems)
    return QuotaContent(_frozen(tables), MappingProxyType(connection_rates))


def _rows(table: dict[str, Any], place: Place) -> list[dict[str, Any]]:
    for key in [key for key in table if key != "quota"]:
        place.add(key, "is not known here", "write every quota under [[quota]]")
    rows = table.get("quota", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        place.add("quota", "is not a list of tables", "write [[quota]]")
        return []
    return rows


def _is_sound(written: Mapping[str, Any], place: Place) -> bool:
    entity = [key for key in ("user", "client-id", "ip") if key in written]
    possible, others = (_IP_KEYS, tuple(_CLIENT_KEYS)) if "ip" in entity else (tuple(_CLIENT_KEYS), _IP_KEYS)
    misplaced = [key for key in others if key in written]
    if not entity:
        place.add("user", "is missing", "write user, client-id, both, or ip alone")
    elif "ip" in entity and len(entity) > 1:
        place.add("ip", f"cannot stand beside {entity[0]}", "write it in a [[quota]] of its own")
    elif misplaced and "ip" in entity:
        place.add(misplaced[0], "does not apply to an ip", "write user or client-id instead of ip")
    elif misplaced:
        place.add(misplaced[0], f"does not apply to a {entity[0]}", "write ip instead")
    elif not any(key in written for key in possible):
        place.add(possible[0], "is missing", f"write at least one of {', '.join(possible)}" if len(possible) > 1 else "write it")
    else:
        return True
    return False


def _is_first(row: _Row, at: int, seen: dict[tuple[str | None, ...], int], place: Place) -> bool:
    first = seen.setdefault((row.user, row.client_id, row.ip), at)
    if first != at:
        key = "ip" if row.ip is not None else "client-id" if row.client_id is not None else "user"
        place.add(key, f"is the entity of quota[{first}] again", "write one [[quota]] for both")
    return first == at


def _enter(row: _Row, tables: dict[ClientQuotaType, dict[ClientQuotaEntity, float]], connection_rates: dict[str, int]) -> None:
    if row.ip is not None:
        if row.connection_creation_rate is not None:
            connection_rates[row.ip] = row.connection_creation_rate
        return
    entity = ClientQuotaEntity(row.user, row.client_id)
    for key, quota_type in _CLIENT_KEYS.items():
        bound = getattr(row, key)
        if bound is not None:
            tables[quota_type][entity] = bound


def _frozen(tables: Mapping[ClientQuotaType, dict[ClientQuotaEntity, float]]) -> QuotaTable:
    return MappingProxyType({quota_type: MappingProxyType(table) for quota_type, table in tables.items()})
