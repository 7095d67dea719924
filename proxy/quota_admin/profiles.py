"""Computes the changes of a request to a store, by the rules of KRaft or of ZooKeeper. No I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Literal

from proxy.quota_store.store import Quotas
from quota.admin.describe import describe_kraft, describe_zookeeper
from quota.admin.keys import ValueType, keys_of
from quota.admin.kraft import Change, alter_kraft
from quota.admin.messages import Alteration, Component, Description, EntityKey, Result
from quota.admin.znodes import entity_of, java_double
from quota.admin.zookeeper import alter_zookeeper

Profile = Literal["kraft", "zookeeper"]


def describe(profile: Profile, components: Sequence[Component], quotas: Quotas, *, strict: bool) -> Description:
    """Return the quotas that match a filter."""
    answer = describe_kraft if profile == "kraft" else describe_zookeeper
    return answer(components, quotas, strict=strict)


def judge(profile: Profile, alterations: Sequence[Alteration], quotas: Quotas) -> tuple[list[Result], list[Change]]:
    """Return a result for each entity, and the changes of `quotas`, which is not modified."""
    if profile == "kraft":
        return alter_kraft(alterations, quotas, is_address)
    nodes = _Nodes(quotas)
    results = alter_zookeeper(alterations, nodes, is_address, validate_only=False)
    return results, nodes.changes()


def is_address(host: str) -> bool:
    """Whether a host is a literal address. Kafka resolves names here; Sluice does not."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Nodes:
    """Quotas as the nodes of a broker with ZooKeeper, changed in a copy."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._written: dict[EntityKey, dict[str, float]] = {}

    def read(self, path: str) -> Mapping[str, str]:
        entity = _entity(path)
        types = keys_of(entity)
        values = self._written.get(entity, self._quotas.get(entity, {}))
        return {key: _text(value, types.get(key)) for key, value in values.items()}

    def write(self, path: str, config: Mapping[str, str]) -> None:
        self._written[_entity(path)] = {key: float(text) for key, text in config.items()}

    def changes(self) -> list[Change]:
        changes: list[Change] = []
        for entity, after in self._written.items():
            before = self._quotas.get(entity, {})
            changes += [Change(entity, key, value) for key, value in after.items() if before.get(key) != value]
            changes += [Change(entity, key, None) for key in before if key not in after]
        return changes


def _entity(path: str) -> EntityKey:
    entity = entity_of(path)
    assert entity is not None, path
    return entity


def _text(value: float, value_type: ValueType | None) -> str:
    return str(int(value)) if value_type is not None and value_type.is_whole else java_double(value)
