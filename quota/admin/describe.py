"""Finds the entities that match a filter, and checks the filter.

Source: Kafka 3.8 `ClientQuotasImage.describe` (KRaft) and `ZkAdminManager.describeClientQuotas`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from quota.admin.keys import keys_of
from quota.admin.messages import (
    CLIENT_ID,
    INVALID_REQUEST,
    IP,
    NONE,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_VERSION,
    USER,
    AdminError,
    Component,
    Description,
    EntityKey,
    MatchType,
    entity_key,
)

Stored = Mapping[EntityKey, Mapping[str, float]]

_TYPES: Final = (USER, CLIENT_ID, IP)
_ZOOKEEPER_NAMES: Final = {USER: "user", CLIENT_ID: "client", IP: "ip"}
_MATCH_NAMES: Final = {MatchType.DEFAULT: "DEFAULT", MatchType.ANY: "SPECIFIED"}


class _Wanted(NamedTuple):
    """One condition of a filter, validated."""

    entity_type: str
    match_type: int
    match: str | None

    def fits(self, name: str | None) -> bool:
        """Whether the condition matches the name of an entity part; None is the default entity."""
        if self.match_type == MatchType.ANY:
            return True
        return name is None if self.match_type == MatchType.DEFAULT else name is not None and name == self.match


def describe_kraft(components: Sequence[Component], stored: Stored, *, strict: bool) -> Description:
    """Answer a filter as a KRaft broker does."""
    return _described(_check_kraft, components, stored, strict=strict)


def describe_zookeeper(components: Sequence[Component], stored: Stored, *, strict: bool) -> Description:
    """Answer a filter as a broker with ZooKeeper does."""
    return _described(_check_zookeeper, components, stored, strict=strict)


def _described(
    check: Callable[[Sequence[Component]], Iterable[_Wanted]], components: Sequence[Component], stored: Stored, *, strict: bool
) -> Description:
    try:
        wanted = list(check(components))
    except AdminError as error:
        return Description(error.code, error.message, None)
    found: dict[EntityKey, Mapping[str, float]] = {}
    for entity, values in _candidates(wanted, stored, strict=strict):
        if _matches(dict(entity), wanted, strict=strict):
            shown = {key: value for key, value in values.items() if key in keys_of(entity)}
            if shown:
                found[entity] = shown
    return Description(NONE, None, found)


def _candidates(wanted: Sequence[_Wanted], stored: Stored, *, strict: bool) -> Iterable[tuple[EntityKey, Mapping[str, float]]]:
    """Yield candidate entities: a single one where the filter can match only that entity, however many are stored."""
    if not strict or any(one.match_type == MatchType.ANY for one in wanted):
        return stored.items()
    entity = entity_key([(one.entity_type, one.match if one.match_type == MatchType.EXACT else None) for one in wanted])
    return [(entity, stored[entity])] if entity in stored else []


def _matches(parts: Mapping[str, str | None], wanted: Sequence[_Wanted], *, strict: bool) -> bool:
    if strict and len(parts) != len(wanted):
        return False
    if not wanted and strict:
        return False
    return all(one.entity_type in parts and one.fits(parts[one.entity_type]) for one in wanted)


def _check_kraft(components: Sequence[Component]) -> list[_Wanted]:
    wanted: dict[str, _Wanted] = {}
    for entity_type, match_type, match in components:
        if not entity_type:
            raise AdminError(INVALID_REQUEST, "Invalid empty entity type.")
        if entity_type in wanted:
            raise AdminError(INVALID_REQUEST, f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in _TYPES:
            raise AdminError(UNSUPPORTED_VERSION, f"Unsupported entity type {entity_type}")
        _check_match(match_type, match)
        wanted[entity_type] = _Wanted(entity_type, match_type, match)
    if IP in wanted and len(wanted) > 1:
        raise AdminError(INVALID_REQUEST, _MIXED.format(".")) from None
    return list(wanted.values())


_MIXED: Final = (
    "Invalid entity filter component combination{} IP filter component should not be used with user or clientId filter component."
)


def _check_match(match_type: int, match: str | None) -> None:
    if match_type == MatchType.EXACT:
        if match is None:
            raise AdminError(INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
    elif match_type in (MatchType.DEFAULT, MatchType.ANY):
        if match is not None:
            name = _MATCH_NAMES[MatchType(match_type)]
            raise AdminError(INVALID_REQUEST, f"Request specified MATCH_TYPE_{name}, but also specified a match string.")
    else:
        raise AdminError(INVALID_REQUEST, f"Unknown match type {match_type}")


def _check_zookeeper(components: Sequence[Component]) -> list[_Wanted]:
    for _, match_type, match in components:
        if match_type not in tuple(MatchType) or (match_type == MatchType.EXACT and match is None):
            raise AdminError(UNKNOWN_SERVER_ERROR, None)
    wanted: dict[str, _Wanted] = {}
    for entity_type, match_type, match in components:
        if entity_type in wanted:
            raise AdminError(INVALID_REQUEST, f"Duplicate {_ZOOKEEPER_NAMES[entity_type]} filter component entity type")
        if not entity_type:
            raise AdminError(INVALID_REQUEST, "Unexpected empty filter component entity type")
        if entity_type not in _TYPES:
            raise AdminError(UNSUPPORTED_VERSION, f"Custom entity type '{entity_type}' not supported")
        wanted[entity_type] = _Wanted(entity_type, match_type, match)
    if IP in wanted and len(wanted) > 1:
        raise AdminError(INVALID_REQUEST, _MIXED.format(","))
    return list(wanted.values())
