"""Changing quotas as a broker with ZooKeeper does: each entity is read, changed and written as a whole.

Source: Kafka 3.8 `ZkAdminManager`, `AdminZkClient`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from quota.admin.keys import SCRAM_KEYS, ValueType, has_user, keys_of
from quota.admin.kraft import FRACTION, check_entity
from quota.admin.messages import INVALID_REQUEST, UNKNOWN_SERVER_ERROR, AdminError, Alteration, EntityKey, Op, Result
from quota.admin.znodes import java_double, path_of
from quota.entity import sanitize

_MIXED: Final = "Invalid quota entity combination, IP entity should not be used with user/client ID entity."


class ConfigStore(Protocol):
    """Access to the nodes below /config."""

    def read(self, path: str) -> Mapping[str, str]:
        """Return the values of a node; empty when the node does not exist."""

    def write(self, path: str, config: Mapping[str, str]) -> None:
        """Replace the values of a node, or remove the node when `config` is empty, and notify watchers."""


def alter_zookeeper(
    alterations: Sequence[Alteration], store: ConfigStore, resolves: Callable[[str], bool], *, validate_only: bool
) -> list[Result]:
    """Validate alterations and make them one after the other; an entity that occurs twice gets the last result.

    Args:
        alterations: in the order of the request.
        store: the nodes that are read and written.
        resolves: returns whether an IP address or host name can be resolved.
        validate_only: validate, and write nothing.
    """
    results: dict[EntityKey, Result] = {}
    for alteration in alterations:
        entity = alteration.entity
        try:
            check_entity(alteration, _MIXED, resolves, sanitize)  # sanitizing changes every IPv6 address, so none is valid here
            path = path_of(entity)
            config = _changed(store.read(path), alteration.ops, entity)
        except AdminError as error:
            results[entity] = Result(entity, error.code, error.message)
            continue
        if not validate_only:
            store.write(path, config)
        results[entity] = Result(entity)
    return list(results.values())


def _changed(now: Mapping[str, str], ops: Sequence[Op], entity: EntityKey) -> dict[str, str]:
    config = dict(now)
    keys = keys_of(entity)
    for key, value, remove in ops:
        if remove:
            config.pop(key, None)
            continue
        value_type = keys.get(key)
        if value_type is None:
            if key in SCRAM_KEYS and has_user(entity):
                raise AdminError(UNKNOWN_SERVER_ERROR, None)
            raise AdminError(INVALID_REQUEST, f"Invalid configuration key {key}")
        config[key] = _text(key, value, value_type)
    return config


def _text(key: str, value: float, value_type: ValueType) -> str:
    if math.isnan(value):  # brokers store it, and it limits no client
        raise AdminError(INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if not value_type.is_whole:
        return java_double(value)
    largest = 2**63 - 1 if value_type is ValueType.LONG else 2**31 - 1
    whole = max(-largest - 1, min(largest, math.trunc(value + FRACTION))) if math.isfinite(value) else (largest if value > 0 else -largest)
    if not abs(float(whole) - value) <= FRACTION:
        raise AdminError(INVALID_REQUEST, f"Configuration {key} must be a {value_type.name} value")
    return str(whole)
