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
    """How a filter looks at the name of a part."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


class Component(NamedTuple):
    """One condition of a filter; `match_type` as it came, also where it is none."""

    entity_type: str
    match_type: int
    match: str | None


class Op(NamedTuple):
    """Set a key of an entity, or remove it."""

    key: str
    value: float
    remove: bool


class Alteration(NamedTuple):
    """What is to change of one entity: its parts as they were named, and the changes in their order."""

    parts: Sequence[tuple[str, str | None]]
    ops: Sequence[Op]

    @property
    def entity(self) -> EntityKey:
        """The entity meant: of a type that is named twice the last name counts."""
        return entity_key(self.parts)


class Result(NamedTuple):
    """What became of an alteration; code 0 and no message: it was made."""

    entity: EntityKey
    error_code: int = NONE
    error_message: str | None = None


class Description(NamedTuple):
    """Entities with their values; None with an error."""

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
    """Return the entity that parts name."""
    return tuple(sorted(dict(parts).items(), key=lambda part: part[0]))


def shown(entity: EntityKey) -> str:
    """Return an entity as Java prints it in messages."""
    parts = sorted(entity, key=lambda part: _PRINTED.get(part[0], len(_PRINTED)))
    inside = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    return f"ClientQuotaEntity(entries={{{inside}}})"
