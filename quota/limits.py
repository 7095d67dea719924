"""All quotas of one type, by entity and by tags. The object is immutable; a change replaces it in all managers at once.

The managers of many brokers share one object, so a change of thousands of quotas costs each of them only a pass over its groups.
"""

import weakref
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from quota.entity import ClientQuotaEntity, user_tag
from quota.errors import QuotaError
from quota.names import kept_name

CLIENT_ID_LEVEL: Final = 1
USER_LEVEL: Final = 2
USER_CLIENT_ID_LEVEL: Final = 4


class DefaultPart:
    """Represents a default entity in keys; it is not equal to any name."""


DEFAULT_PART: Final = DefaultPart()
Part = str | DefaultPart | None
RuleKey = tuple[Part, Part]
Rule = tuple[ClientQuotaEntity, float]


class QuotaLimits(Mapping[ClientQuotaEntity, float]):
    """Bounds in units per second, by entity.

    Attributes:
        rules: the bounds by user and client-id in the form used in tags; not to be modified.
    """

    __slots__ = ("__weakref__", "_before", "_bounds", "_changes", "_counts", "rules")

    def __init__(self) -> None:
        self._bounds: dict[ClientQuotaEntity, float] = {}
        self.rules: dict[RuleKey, Rule] = {}
        self._counts = {CLIENT_ID_LEVEL: 0, USER_LEVEL: 0, USER_CLIENT_ID_LEVEL: 0}
        self._before: weakref.ref[QuotaLimits] | None = None
        self._changes: Collection[ClientQuotaEntity] = ()

    @classmethod
    def of(cls, bounds: Mapping[ClientQuotaEntity, float]) -> "QuotaLimits":
        """Return `bounds` as `QuotaLimits`, converted if necessary.

        Raises:
            QuotaError: an entity without a name.
        """
        return bounds if isinstance(bounds, cls) else cls().changed(bounds)

    def __getitem__(self, entity: ClientQuotaEntity) -> float:
        return self._bounds[entity]

    def __iter__(self) -> Iterator[ClientQuotaEntity]:
        return iter(self._bounds)

    def __len__(self) -> int:
        return len(self._bounds)

    @property
    def bounds(self) -> Mapping[ClientQuotaEntity, float]:
        """The bounds as a plain dict, which is faster to look up; not to be modified."""
        return self._bounds

    @property
    def levels(self) -> int:
        """One bit for each level that has quotas."""
        return sum(level for level, count in self._counts.items() if count)

    def changed(self, changes: Mapping[ClientQuotaEntity, float | None]) -> "QuotaLimits":
        """Return a copy with other bounds (None removes one); the same object when nothing differs.

        Raises:
            QuotaError: an entity without a name.
        """
        different = {entity: bound for entity, bound in changes.items() if self._bounds.get(entity) != bound}
        if not different:
            return self
        new = QuotaLimits()
        new._bounds, new.rules, new._counts = self._bounds.copy(), self.rules.copy(), self._counts.copy()
        new._before, new._changes = weakref.ref(self), different.keys()
        for entity, bound in different.items():
            new._put(entity, bound)
        return new

    def _put(self, entity: ClientQuotaEntity, bound: float | None) -> None:
        level = level_of(entity)
        if not level:
            raise QuotaError("an entity needs a user, a client-id, or both")
        if bound is None:
            del self._bounds[entity], self.rules[rule_key(entity)]
            self._counts[level] -= 1
            return
        self._counts[level] += entity not in self._bounds
        self._bounds[entity] = bound
        self.rules[rule_key(entity)] = (entity, bound)

    def since(self, before: "QuotaLimits") -> Collection[ClientQuotaEntity]:
        """Return the entities whose bound differs from that in `before`; a stored list when this object was made from `before`."""
        if self._before is not None and self._before() is before:
            return self._changes
        if not before:
            return self._bounds.keys()
        mine, theirs = self._bounds, before._bounds
        return [
            *(entity for entity in theirs if entity not in mine),
            *(entity for entity, bound in mine.items() if theirs.get(entity) != bound),
        ]


def level_of(entity: ClientQuotaEntity) -> int:
    """Return the bit of the level that an entity belongs to; 0 where it has no name."""
    if entity.user is None:
        return CLIENT_ID_LEVEL if entity.client_id is not None else 0
    return USER_LEVEL if entity.client_id is None else USER_CLIENT_ID_LEVEL


def rule_key(entity: ClientQuotaEntity) -> RuleKey:
    """Return the key of the entity's rule: its names in the form used in tags."""
    user: Part = None if entity.user is None else user_tag(entity.user)
    client_id: Part = None if entity.client_id is None else kept_name(entity.client_id)
    return (DEFAULT_PART if entity.user_is_default else user, DEFAULT_PART if entity.client_id_is_default else client_id)
