"""Which quota applies to a client: the levels of precedence, in Kafka's order.

Source: Kafka 3.8 `DefaultQuotaCallback.quotaLimit`; for addresses `ConnectionQuotas`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sluice.client_quota_entity import CLIENT_ID, IP, USER, ClientQuotaEntity


class Level(NamedTuple):
    """An entity that could apply, with its value; None: it has no value, so the next level is checked."""

    entity: ClientQuotaEntity
    value: float | None
    wins: bool


def levels(quotas: Mapping[ClientQuotaEntity, Mapping[str, float]], key: str, user: str | None, client_id: str | None) -> list[Level]:
    """Return the levels of precedence of a user and client-id for one key; user None: the levels that apply to every user."""
    return _judged(quotas, key, _client_entities(user, client_id))


def ip_levels(quotas: Mapping[ClientQuotaEntity, Mapping[str, float]], key: str, ip: str) -> list[Level]:
    """Return the levels of precedence of an IP address."""
    entities: list[dict[str, str | None]] = [{IP: ip}, {IP: None}]
    return _judged(quotas, key, iter(entities))


def _client_entities(user: str | None, client_id: str | None) -> Iterator[dict[str, str | None]]:
    for name in dict.fromkeys((user, None)):
        if client_id is not None:
            yield {USER: name, CLIENT_ID: client_id}
        yield {USER: name, CLIENT_ID: None}
        yield {USER: name}
    if client_id is not None:
        yield {CLIENT_ID: client_id}
    yield {CLIENT_ID: None}


def _judged(quotas: Mapping[ClientQuotaEntity, Mapping[str, float]], key: str, entities: Iterator[dict[str, str | None]]) -> list[Level]:
    found: list[Level] = []
    for parts in entities:
        entity = ClientQuotaEntity.of(parts)
        value = quotas.get(entity, {}).get(key)
        found.append(Level(entity, value, value is not None and not any(level.wins for level in found)))
    return found
