"""How quotas are enforced, by window or by schedule: the configuration, and the table that changes it at run time.

A target is written `all`, `group:NAME` of a declared group without a parent, or `entity:` and the parts of an entity with a quota of its
own, as in `switches`: `entity:user=alice`, `entity:client-id=<default>`. It matches the groups of clients to which the quota of exactly
this entity applies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from proxy.base.printable import printable
from proxy.base.units import shown
from proxy.config.values import read_name
from proxy.enforcement.switches import ALL, ENTITY, SwitchError, read_target
from proxy.enforcement.switches import Target as SwitchTarget
from quota.admin.messages import CLIENT_ID, IP, USER, EntityKey, entity_key
from quota.entity import ClientQuotaEntity
from quota.groups.declared_groups import GROUP_TAG, DeclaredGroups

GROUP: Final = "group:"
PACINGS_MAX: Final = 1_000
TARGET_REMEDY: Final = "write all, group:NAME, entity:user=NAME, entity:client-id=NAME, or both with a comma between"


class Pacing(Enum):
    """How produced bytes, fetched bytes and request time are enforced."""

    WINDOW = "window"  # by the rate in Kafka's window
    PACED = "paced"  # by a schedule


class PacedTarget(NamedTuple):
    """The target of a pacing: a declared group, an entity, or with neither of them everything. Its text is the form that stores keep."""

    group: str | None = None
    entity: EntityKey | None = None

    def __str__(self) -> str:
        if self.group is not None:
            return GROUP + self.group
        return ALL if self.entity is None else str(SwitchTarget(entity=self.entity))


def read_paced_target(text: str) -> PacedTarget:
    """Parse a target.

    Raises:
        SwitchError: the text is not a target of a pacing.
    """
    if text == ALL:
        return PacedTarget()
    if text.startswith(GROUP):
        try:
            return PacedTarget(group=read_name(text.removeprefix(GROUP)))
        except ValueError as error:
            raise SwitchError(f"{error}; write the name of a [[group]]") from None
    if not text.startswith(ENTITY):
        raise SwitchError(f"{shown(text)} has no pacing; {TARGET_REMEDY}")
    entity = read_target(text).entity
    assert entity is not None
    if any(kind == IP for kind, _ in entity):
        raise SwitchError(f"connections of an address are not paced; {TARGET_REMEDY}")
    return PacedTarget(entity=entity)


def read_pacing(text: str) -> Pacing:
    """Parse a pacing.

    Raises:
        SwitchError: the text is not a pacing.
    """
    try:
        return Pacing(text)
    except ValueError:
        raise SwitchError(f"{shown(text)} is no pacing; write paced or window") from None


class PacingTable:
    """The pacings that were set at run time. The most specific applies: an entity's or a group's, then that of all.

    Attributes:
        problems: entries of the store that are no pacings; they are ignored.
    """

    __slots__ = ("_entities", "_groups", "_of_all", "problems", "table")

    def __init__(self, table: Mapping[str, str] | None = None) -> None:
        self.problems: list[str] = []
        self._of_all: Pacing | None = None
        self._groups: dict[str, Pacing] = {}
        self._entities: dict[EntityKey, Pacing] = {}
        self.table: dict[str, Pacing] = {}
        for text, pacing in (table or {}).items():
            try:
                self._add(read_paced_target(text), read_pacing(pacing))
            except SwitchError as error:
                self.problems.append(f"{printable(text, 128)}: {error}")

    def __bool__(self) -> bool:
        return bool(self.table)

    @property
    def paces(self) -> bool:
        """Whether anything is paced by the table."""
        return Pacing.PACED in self.table.values()

    @property
    def depends_on_quotas(self) -> bool:
        """Whether a change of quotas or of declared groups may change a pacing, since those of another target may apply then."""
        return bool(self._entities or self._groups)

    def of_group(self, name: str) -> Pacing | None:
        """Return the pacing of a declared group without a parent; None: as configured."""
        return self._groups.get(name, self._of_all)

    def of_rule(self, rule: ClientQuotaEntity | None) -> Pacing | None:
        """Return the pacing of groups to which the quota of `rule` applies; None: as configured."""
        if rule is None or not self._entities:
            return self._of_all
        return self._entities.get(_key_of(rule), self._of_all)

    def _add(self, target: PacedTarget, pacing: Pacing) -> None:
        if len(self.table) >= PACINGS_MAX:
            raise SwitchError(f"more than {PACINGS_MAX} pacings; remove some, or pace all or a default entity")
        if target.group is not None:
            self._groups[target.group] = pacing
        elif target.entity is None:
            self._of_all = pacing
        else:
            self._entities[target.entity] = pacing
        self.table[str(target)] = pacing


class PacingRules(NamedTuple):
    """What may be paced at run time, by the configuration."""

    refusal: str | None = None
    """Why nothing can be paced; None: it can."""
    parents: Mapping[str, str | None] = MappingProxyType({})
    """The parent of each declared group."""

    def check(self, target: PacedTarget, pacing: Pacing) -> None:
        """Check a pacing before it is stored.

        Raises:
            SwitchError: it cannot have an effect here.
        """
        if pacing is Pacing.PACED and self.refusal is not None:
            raise SwitchError(f"the pacing {self.refusal}; write window, or default")
        if target.group is None:
            return
        if target.group not in self.parents:
            names = ", ".join(self.parents) or "none"
            raise SwitchError(f"no declared group is named {shown(target.group)}; there is {names}")
        top = target.group
        while (above := self.parents[top]) is not None:
            top = above
        if top != target.group:
            raise SwitchError(f"{shown(target.group)} has the pacing of the group above it; write {GROUP}{top}")


class Pacings:
    """Which groups are paced now: by the table, else by the configuration. Shared and mutable.

    Args:
        burst_ms: how far a schedule may be ahead of the clock when a request passes.
        named: whether each declared group with a pacing of its own is paced, by the configuration.
        paces_others: whether all other groups are paced, by the configuration.

    Attributes:
        paces_others: as the argument.
        table: the pacings that were set at run time.
        groups: the declared groups, which have the pacing of the topmost group above them.
    """

    __slots__ = ("_named", "burst_ms", "groups", "paces_others", "table")

    def __init__(self, burst_ms: int, named: Mapping[str, bool] | None = None, *, paces_others: bool = True) -> None:
        self.burst_ms = burst_ms
        self._named = dict(named or {})
        self.paces_others = paces_others
        self.table = PacingTable()
        self.groups: DeclaredGroups | None = None

    @property
    def paces(self) -> bool:
        """Whether any group may be paced."""
        return self.paces_others or any(self._named.values()) or self.table.paces

    def configured(self) -> Iterator[tuple[str, Pacing]]:
        """Yield the declared groups with a pacing of their own in the configuration, unless the table has one for all."""
        if self.table.of_rule(None) is None:
            yield from ((name, Pacing.PACED if paced else Pacing.WINDOW) for name, paced in self._named.items())

    def weight_of(self, name: str) -> float:
        """Return the weight of a declared group."""
        return 1.0 if self.groups is None else self.groups.weight(name)

    def path_below(self, name: str, above: str) -> tuple[tuple[str, Callable[[], float]], ...]:
        """Return the declared groups below `above` down to `name`, the topmost first, each with its weight."""
        return self._with_weights((name,) if self.groups is None else self.groups.path_below(name, above))

    def below(self, name: str) -> tuple[tuple[str, Callable[[], float]], ...]:
        """Return the declared groups with this parent, each with its weight."""
        return self._with_weights(() if self.groups is None else self.groups.below(name))

    def _with_weights(self, names: Iterable[str]) -> tuple[tuple[str, Callable[[], float]], ...]:
        return tuple((name, functools.partial(self.weight_of, name)) for name in names)

    def is_paced(self, tags: Mapping[str, str], rule: ClientQuotaEntity | None = None) -> bool:
        """Whether the group of these tags is paced.

        Args:
            rule: the entity whose quota applies to it; None: that of no entity.
        """
        declared = tags.get(GROUP_TAG)
        if declared is None:
            pacing = self.table.of_rule(rule)
            return self.paces_others if pacing is None else pacing is Pacing.PACED
        top = declared if self.groups is None else self.groups.topmost(declared)
        pacing = self.table.of_group(top)
        return self._named.get(declared, self.paces_others) if pacing is None else pacing is Pacing.PACED


def _key_of(entity: ClientQuotaEntity) -> EntityKey:
    parts: list[tuple[str, str | None]] = []
    if entity.user is not None:
        parts.append((USER, None if entity.user_is_default else entity.user))
    if entity.client_id is not None:
        parts.append((CLIENT_ID, None if entity.client_id_is_default else entity.client_id))
    return entity_key(parts)
