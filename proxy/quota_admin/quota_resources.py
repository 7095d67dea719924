"""Quotas as configurations of users and clients (KIP-422): translates resources of requests for the administration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from protocol.messages.config_resources import DELETE, SET, USER, ConfigOp, ConfigResource, ConfigValue
from quota.admin.keys import ValueType, keys_of
from quota.admin.messages import INVALID_REQUEST, AdminError, Alteration, Component, EntityKey, MatchType, Op
from quota.admin.resources import entity_of_client, entity_of_user
from quota.admin.znodes import java_double

DYNAMIC_USER_CONFIG: Final = 121
DYNAMIC_CLIENT_CONFIG: Final = 122
"""Sources of values. KIP-422 names them without numbers; Kafka's own numbers are far lower."""

_CONFIG_TYPES: Final = {ValueType.INT: 3, ValueType.LONG: 5, ValueType.DOUBLE: 6}
_DOCUMENTATION: Final = {
    "producer_byte_rate": "Bytes per second that may be produced.",
    "consumer_byte_rate": "Bytes per second that may be fetched.",
    "request_percentage": "Percent of one thread that requests may take.",
    "controller_mutation_rate": "Partitions per second that may be made or deleted.",
}
_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)


def entity_of(resource: ConfigResource) -> EntityKey:
    """Return the entity of a resource.

    Raises:
        AdminError: the name is not that of an entity.
    """
    return entity_of_user(resource.name) if resource.type == USER else entity_of_client(resource.name)


def filter_of(entity: EntityKey) -> list[Component]:
    """Return the filter that matches only this entity."""
    return [Component(kind, MatchType.DEFAULT if name is None else MatchType.EXACT, name) for kind, name in entity]


def configs_of(resource: ConfigResource, entity: EntityKey, values: Mapping[str, float]) -> list[ConfigValue]:
    """Return an entity's quotas as configurations, limited to the keys of the resource."""
    source = DYNAMIC_USER_CONFIG if resource.type == USER else DYNAMIC_CLIENT_CONFIG
    types = keys_of(entity)
    wanted = set(resource.keys or values)
    return [
        ConfigValue(key, _text(value), source, _CONFIG_TYPES[types[key]], _DOCUMENTATION.get(key, ""))
        for key, value in values.items()
        if key in wanted
    ]


def alteration_of(resource: ConfigResource) -> Alteration:
    """Return the alteration of a resource of IncrementalAlterConfigs.

    Raises:
        AdminError: quotas do not support the operation.
    """
    return Alteration(entity_of(resource), [_op(op) for op in resource.ops])


def _op(op: ConfigOp) -> Op:
    if op.operation == DELETE:
        return Op(op.name, 0.0, remove=True)
    if op.operation != SET:
        raise AdminError(INVALID_REQUEST, f"Quota {op.name} is not a list: it can be set and deleted")
    if op.value is None or not _NUMBER.match(op.value.strip()):
        raise AdminError(INVALID_REQUEST, f"Invalid value {op.value} for quota {op.name}: it has to be a number")
    return Op(op.name, float(op.value), remove=False)


def _text(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**63 else java_double(value)
