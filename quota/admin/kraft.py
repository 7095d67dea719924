"""Changing quotas as a KRaft controller does.

Source: Kafka 3.8 `ClientQuotaControlManager`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from quota.admin.keys import ValueType, keys_of
from quota.admin.messages import CLIENT_ID, INVALID_REQUEST, IP, USER, AdminError, Alteration, EntityKey, Op, Result, shown

FRACTION: Final = 1e-6
_TYPES: Final = (USER, CLIENT_ID, IP)
_MIXED: Final = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"


class Change(NamedTuple):
    """One value to write, or with None to remove."""

    entity: EntityKey
    key: str
    value: float | None


def alter_kraft(
    alterations: Sequence[Alteration], stored: Mapping[EntityKey, Mapping[str, float]], resolves: Callable[[str], bool]
) -> tuple[list[Result], list[Change]]:
    """Validate alterations; return a result for each entity, and the changes to make.

    A value that stays the same is not a change. An entity that occurs twice gets an error, but its first alteration is made.

    Args:
        alterations: in the order of the request.
        stored: the current quotas; not modified.
        resolves: returns whether an IP address or host name can be resolved.
    """
    results: dict[EntityKey, Result] = {}
    changes: list[Change] = []
    for alteration in alterations:
        entity = alteration.entity
        values = {op.key: None if op.remove else op.value for op in alteration.ops}
        if entity in results or len(values) < len(alteration.ops):
            results[entity] = Result(entity, INVALID_REQUEST, f"Ignoring duplicate entity {shown(entity)}")
            continue
        try:
            check_entity(alteration, _MIXED, resolves)
            _check_ops(alteration.ops, keys_of(entity))
        except AdminError as error:
            results[entity] = Result(entity, error.code, error.message)
            continue
        now = stored.get(entity, {})
        changes += [Change(entity, key, value) for key, value in values.items() if now.get(key) != value]
        results[entity] = Result(entity)
    return list(results.values()), changes


def check_entity(alteration: Alteration, mixed: str, resolves: Callable[[str], bool], written: Callable[[str], str] = str) -> None:
    """Refuse an entity that Kafka does not accept. Both profiles check the same conditions in the same order.

    Args:
        alteration: the alteration whose entity is checked.
        mixed: the error message for an IP address combined with a user or client-id.
        resolves: returns whether an IP address or host name, formatted by `written`, can be resolved.
        written: formats an IP address as the profile does.

    Raises:
        AdminError: Kafka does not accept the entity.
    """
    parts = dict(alteration.parts)
    _check_parts(parts)
    if IP not in parts:
        return
    if len(parts) > 1:
        raise AdminError(INVALID_REQUEST, mixed)
    ip = parts[IP]
    if ip is not None and not resolves(written(ip)):
        raise AdminError(INVALID_REQUEST, f"{written(ip)} is not a valid IP or resolvable host.")


def _check_parts(parts: Mapping[str, str | None]) -> None:
    if not parts:
        raise AdminError(INVALID_REQUEST, "Invalid empty client quota entity")
    for entity_type, name in parts.items():
        if entity_type not in _TYPES:
            raise AdminError(INVALID_REQUEST, f"Unhandled client quota entity type: {entity_type}")
        if name == "":
            raise AdminError(INVALID_REQUEST, f"Empty {entity_type} not supported")


def _check_ops(ops: Sequence[Op], keys: Mapping[str, ValueType]) -> None:
    for key, value, remove in ops:
        if remove:
            continue
        value_type = keys.get(key)
        if value_type is None:
            raise AdminError(INVALID_REQUEST, f"Invalid configuration key {key}")
        if not value > 0:  # NaN too: brokers store it, and it limits no client
            raise AdminError(INVALID_REQUEST, f"Quota {key} must be greater than 0")
        if value_type.is_whole:
            if value > value_type.value:
                article = "an" if value_type is ValueType.INT else "a"
                raise AdminError(INVALID_REQUEST, f"Proposed value for {key} is too large for {article} {value_type.name}.")
            if value % 1.0 > FRACTION:
                raise AdminError(INVALID_REQUEST, f"{key} cannot be a fractional value.")
