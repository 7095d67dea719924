"""Changing quotas as a broker with ZooKeeper does: entity by entity, each read, changed and written whole.

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
    """The nodes below /config."""

    def read(self, path: str) -> Mapping[str, str]:
        """The values of a node, empty where there is none."""

    def write(self, path: str, config: Mapping[str, str]) -> None:
        """Replace the values of a node, remove it where there are none, and tell who listens."""


def alter_zookeeper(
    alterations: Sequence[Alteration], store: ConfigStore, resolves: Callable[[str], bool], *, validate_only: bool
) -> list[Result]:
    """Judge alterations and make them one after the other; of an entity that comes twice the last result is reported.

    Args:
        alterations: in the order of the request.
        store: where they are kept.
        resolves: whether an address or host name means anything.
        validate_only: judge only.
    """
    results: dict[EntityKey, Result] = {}
    for alteration in alterations:
        entity = alteration.entity
        try:
            check_entity(alteration, _MIXED, resolves, sanitize)  # which no IPv6 address survives
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
    if math.isnan(value):  # brokers keep it, and then it limits no client
        raise AdminError(INVALID_REQUEST, f"Quota {key} must be greater than 0")
    if not value_type.is_whole:
        return java_double(value)
    largest = 2**63 - 1 if value_type is ValueType.LONG else 2**31 - 1
    whole = max(-largest - 1, min(largest, math.trunc(value + FRACTION))) if math.isfinite(value) else (largest if value > 0 else -largest)
    if not abs(float(whole) - value) <= FRACTION:
        raise AdminError(INVALID_REQUEST, f"Configuration {key} must be a {value_type.name} value")
    return str(whole)
