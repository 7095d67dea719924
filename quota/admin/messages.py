"""Requests and results: entities, filters, changes.

Source: Kafka 3.8 `DescribeClientQuotasRequest`, `AlterClientQuotasRequest`.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

NONE: Final = 0
UNKNOWN_SERVER_ERROR: Final = -1
CLUSTER_AUTHORIZATION_FAILED: Final = 31
UNSUPPORTED_VERSION: Final = 35
INVALID_REQUEST: Final = 42

EntityKey = tuple[tuple[str, str | None], ...]
"""Parts of an entity, type and name, sorted by type; None is the default entity."""

_PRINTED: Final = {IP: 0, CLIENT_ID: 1, USER: 2}


class MatchType(IntEnum):
    """How a filter matches the name of an entity part."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """One condition of a filter; `match_type` is the number received, which may be invalid."""

    entity_type: str
    match_type: int
    match: str | None


class Op(NamedTuple):
    """One key of an entity to set, or to remove."""

    key: str
    value: float
    remove: bool


class Alteration(NamedTuple):
    """The changes of one entity: its parts as the request names them, and the operations in order."""

    parts: Sequence[tuple[str, str | None]]
    ops: Sequence[Op]

    @property
    def entity(self) -> EntityKey:
        """The entity; when a type is named twice, the last name counts."""
        return entity_key(self.parts)


class Result(NamedTuple):
    """Result of one alteration; code 0 and no message mean that it was made."""

    entity: EntityKey
    error_code: int = NONE
    error_message: str | None = None


class Description(NamedTuple):
    """Entities and their values; `entries` is None when there is an error."""

    error_code: int
    error_message: str | None
    entries: Mapping[EntityKey, Mapping[str, float]] | None


class AdminError(Exception):
    """A request, or an entry of one, that Kafka refuses.

    Attributes:
        code: Kafka's error code.
        message: Kafka's text; None where it has none.
    """

    def __init__(self, code: int, message: str | None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def entity_key(parts: Sequence[tuple[str, str | None]]) -> EntityKey:
    """Return the key of the entity with these parts."""
    return tuple(sorted(dict(parts).items(), key=lambda part: part[0]))


def shown(entity: EntityKey) -> str:
    """Return an entity in the form in which Java prints it in messages."""
    parts = sorted(entity, key=lambda part: _PRINTED.get(part[0], len(_PRINTED)))
    inside = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    return f"ClientQuotaEntity(entries={{{inside}}})"
