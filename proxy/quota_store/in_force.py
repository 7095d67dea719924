"""Derives the enforced quotas from the content of a store. Pure; its cost is proportional to the changes."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from proxy.quota_store.store import EMPTY, StoreContent, different_entities
from quota.admin.keys import CLIENT_KEYS, IP_KEYS
from quota.admin.messages import CLIENT_ID, IP, USER, EntityKey
from quota.connections.client_address import address_of
from quota.entity import DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType
from quota.limits import QuotaLimits

QuotaTable = Mapping[ClientQuotaType, QuotaLimits]
"""All quotas by type and entity, in units per second. Immutable."""

SMALLEST: Final = 1.0
"""The enforced quota, in units per second, for a stored value of 0 or below without an earlier positive value."""
CONNECTIONS_MAX: Final = 2**31 - 1

_TYPES: Final = {
    "producer_byte_rate": ClientQuotaType.PRODUCE,
    "consumer_byte_rate": ClientQuotaType.FETCH,
    "request_percentage": ClientQuotaType.REQUEST,
    "controller_mutation_rate": ClientQuotaType.CONTROLLER_MUTATION,
}
assert _TYPES.keys() == CLIENT_KEYS.keys()
(_CONNECTION_RATE,) = IP_KEYS


def empty_table() -> QuotaTable:
    """Return an empty table of quotas."""
    return MappingProxyType({quota_type: QuotaLimits() for quota_type in _TYPES.values()})


class InForce(NamedTuple):
    """The quotas that are enforced."""

    content: StoreContent
    table: QuotaTable
    connection_rates: Mapping[str, int]
    """Connections per second of an IP address or host name, or of `<default>`."""
    replaced: Mapping[tuple[EntityKey, str], float]
    """Stored values that are not enforced as they are, with the value in force instead."""


NOTHING: Final = InForce(EMPTY, empty_table(), MappingProxyType({}), MappingProxyType({}))


def in_force(content: StoreContent, before: InForce = NOTHING) -> InForce:
    """Return the enforced quotas of `content`; `before` are the quotas enforced until now.

    Kafka with ZooKeeper stores values of 0 and below. They are not enforced: the entity's previous bound stays in force, or one unit per
    second if there is none. A connection rate of 0 for an address is enforced: no connection from it is accepted.
    """
    if content.quotas is before.content.quotas:
        return before._replace(content=content)
    edit = _Edit(before)
    different = different_entities(before.content.quotas, content.quotas)
    for entity in different:
        edit.take_away(entity)
    for entity in different:
        edit.put(entity, content.quotas.get(entity, {}))
    return edit.done(content)


def entity_of(entity: EntityKey) -> ClientQuotaEntity:
    """Return the user, client-id or both that a store's entity names."""
    parts = dict(entity)
    user, client_id = (_name(parts, kind) for kind in (USER, CLIENT_ID))
    return ClientQuotaEntity(user, client_id, parts.get(USER) is not None, parts.get(CLIENT_ID) is not None)


def _name(parts: Mapping[str, str | None], kind: str) -> str | None:
    return (parts[kind] or DEFAULT) if kind in parts else None


def _host(entity: EntityKey) -> str:
    ((_, name),) = entity
    return DEFAULT if name is None else address_of(name) or name


class _Edit:
    """Collects changes to `before`; a quota type without changes keeps its mapping object."""

    def __init__(self, before: InForce) -> None:
        self._before = before
        self._bounds: dict[ClientQuotaType, dict[ClientQuotaEntity, float | None]] = {quota_type: {} for quota_type in before.table}
        self._rates: dict[str, int | None] = {}
        self._replaced = dict(before.replaced)

    def take_away(self, entity: EntityKey) -> None:
        keys: Iterable[str] = self._before.content.quotas.get(entity, ())
        for key in keys:
            self._replaced.pop((entity, key), None)
            if key == _CONNECTION_RATE:
                self._rates[_host(entity)] = None
            elif key in _TYPES:
                self._bounds[_TYPES[key]][entity_of(entity)] = None

    def put(self, entity: EntityKey, values: Mapping[str, float]) -> None:
        if entity[0][0] == IP:
            self._put_rate(entity, values)
            return
        client = entity_of(entity)
        for key, value in values.items():
            if key in _TYPES:
                quota_type = _TYPES[key]
                bound = value if value > 0 else self._instead(entity, key, self._before.table[quota_type].get(client))
                self._bounds[quota_type][client] = min(bound, UNLIMITED)

    def _put_rate(self, entity: EntityKey, values: Mapping[str, float]) -> None:
        rate, host = values.get(_CONNECTION_RATE), _host(entity)
        if rate is not None:
            bound = rate if rate >= 0 else self._instead(entity, _CONNECTION_RATE, self._before.connection_rates.get(host))
            self._rates[host] = int(min(bound, CONNECTIONS_MAX))

    def _instead(self, entity: EntityKey, key: str, held: float | None) -> float:
        self._replaced[entity, key] = bound = held or SMALLEST
        return bound

    def done(self, content: StoreContent) -> InForce:
        before = self._before
        new = {quota_type: before.table[quota_type].changed(bounds) for quota_type, bounds in self._bounds.items()}
        same = all(limits is before.table[quota_type] for quota_type, limits in new.items())
        table = before.table if same else MappingProxyType(new)
        return InForce(content, table, self._all_rates(), MappingProxyType(self._replaced))

    def _all_rates(self) -> Mapping[str, int]:
        before = self._before.connection_rates
        if all(before.get(host) == rate for host, rate in self._rates.items()):
            return before
        rates = {**before, **self._rates}
        return MappingProxyType({host: rate for host, rate in rates.items() if rate is not None})
