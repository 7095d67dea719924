"""Groups that the operator declares: their conditions, bounds and parents.

A client is in the first group whose conditions all hold. It shares that group's budget, and counts for the group's parents too; the
longest throttle applies. When neither its group nor a parent has a bound, Kafka's default rule applies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from quota.entity import ClientQuotaType, KafkaPrincipal
from quota.groups.pattern import Pattern

GROUP_TAG: Final = "declared-group"
"""The tag of a declared group's sensors; Kafka has no such tag."""


class AddressRange(Protocol):
    """IP networks."""

    def __contains__(self, host: object) -> bool:
        """Whether an IP address is in one of the networks."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of membership. All that are not None have to hold; a list of patterns holds when one of them matches."""

    users: tuple[Pattern, ...] | None = None
    client_ids: tuple[Pattern, ...] | None = None
    networks: AddressRange | None = None
    listeners: frozenset[str] | None = None

    def hold_at(self, listener: str, host: str) -> bool:
        """Whether the conditions can hold for a connection, by its listener and address."""
        if self.listeners is not None and listener not in self.listeners:
            return False
        return self.networks is None or host in self.networks

    def hold_for(self, user: str, client_id: str) -> bool:
        """Whether the conditions hold for a user and client-id, regardless of listener and address."""
        return _fits(self.users, user) and _fits(self.client_ids, client_id)


@dataclass(frozen=True, slots=True)
class DeclaredGroup:
    """One declared group.

    Attributes:
        conditions: None for a group without members of its own, which is only a parent.
        bounds: units per second.
        parent: the name of the parent group.
        weight: its share among the groups with this parent, where the parent is paced.
    """

    name: str
    conditions: Conditions | None = None
    bounds: Mapping[ClientQuotaType, float] = field(default_factory=dict)
    parent: str | None = None
    weight: float = 1.0


class Link(NamedTuple):
    """One group that a client's usage counts for."""

    group: str
    bound: float


class Explanation(NamedTuple):
    """The declared groups that limit a client."""

    group: str | None
    """The client's group; None when it is in none and Kafka's default rule applies."""
    chains: Mapping[ClientQuotaType, Sequence[Link]]
    """For each limited quota type the groups that the client counts for, from its own, or the nearest with a bound, upwards."""


class Origin(NamedTuple):
    """Listener and address of a connection, as far as declared groups depend on them; shared by many connections."""

    listener: str = ""
    fits: int = 0
    """One bit per group, in order: whether its conditions can hold here."""
    groups: DeclaredGroups | None = None
    """The declared groups from which `fits` was computed."""

    def group_of(self, user: str, client_id: str) -> str | None:
        """Return the name of the group of a client of this origin."""
        return None if self.groups is None else self.groups.group_at(self.fits, user, client_id)


UNKNOWN_ORIGIN: Final = Origin()


@lru_cache(maxsize=256)
def _origin_without_groups(listener: str) -> Origin:
    return Origin(listener)


class DeclaredGroups:
    """All declared groups, in order.

    Args:
        groups: names are unique, parents exist, and no group is its own ancestor; checked when the configuration is read.
    """

    __slots__ = ("_below", "_by_name", "_chains", "_matching")

    def __init__(self, groups: Sequence[DeclaredGroup] = ()) -> None:
        self._by_name = {group.name: group for group in groups}
        self._below: dict[str, list[str]] = {}
        for group in groups:
            if group.parent is not None:
                self._below.setdefault(group.parent, []).append(group.name)
        self._matching = [(group.conditions, group.name) for group in groups if group.conditions is not None]
        self._chains = {
            quota_type: {group.name: tuple(self._links(group, quota_type)) for group in groups} for quota_type in ClientQuotaType
        }

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def limits(self, quota_type: ClientQuotaType) -> bool:
        """Whether any group has a bound of this type."""
        return any(self._chains[quota_type].values())

    def origin(self, listener: str, host: str) -> Origin:
        """Return the origin of a connection; computed once for each listener and address."""
        if not self._matching:
            return _origin_without_groups(listener)
        fits = sum(1 << at for at, (conditions, _) in enumerate(self._matching) if conditions.hold_at(listener, host))
        return Origin(listener, fits, self)

    def group_at(self, fits: int, user: str, client_id: str) -> str | None:
        """Return the first group whose conditions hold for a client, among those in `fits`."""
        while fits:
            lowest = fits & -fits
            conditions, name = self._matching[lowest.bit_length() - 1]
            if conditions.hold_for(user, client_id):
                return name
            fits ^= lowest
        return None

    def chain(self, quota_type: ClientQuotaType, name: str | None) -> tuple[Link, ...]:
        """Return the groups that a member of `name` counts for: itself, or the nearest group with a bound, and its parents; () for none."""
        return () if name is None else self._chains[quota_type].get(name, ())

    def has_bound(self, quota_type: ClientQuotaType, name: str) -> bool:
        """Whether a group of this name is declared with a bound of its own."""
        chain = self.chain(quota_type, name)
        return bool(chain) and chain[0].group == name

    def weight(self, name: str) -> float:
        """Return the weight of a group; 1 if it is not declared."""
        group = self._by_name.get(name)
        return 1.0 if group is None else group.weight

    def path_below(self, name: str, above: str) -> tuple[str, ...]:
        """Return the groups below `above` down to `name`, the topmost first; none if `above` is not above it."""
        names: list[str] = []
        group = self._by_name.get(name)
        while group is not None and group.name != above:
            names.append(group.name)
            group = None if group.parent is None else self._by_name[group.parent]
        return tuple(reversed(names)) if group is not None else ()

    def below(self, name: str) -> Sequence[str]:
        """Return the groups with this parent."""
        return self._below.get(name, ())

    def topmost(self, name: str) -> str:
        """Return the topmost group above a group; its own name if there is none, or if it is not declared."""
        group = self._by_name.get(name)
        while group is not None and group.parent is not None:
            group = self._by_name[group.parent]
        return name if group is None else group.name

    def explain(self, listener: str, host: str, user: str, client_id: str) -> Explanation:
        """Return a client's group, and the groups that it counts for."""
        name = self.origin(listener, host).group_of(user, client_id)
        chains = {quota_type: self.chain(quota_type, name) for quota_type in ClientQuotaType}
        return Explanation(name, {quota_type: chain for quota_type, chain in chains.items() if chain})

    def _links(self, group: DeclaredGroup, quota_type: ClientQuotaType) -> Iterator[Link]:
        here: DeclaredGroup | None = group
        while here is not None:
            bound = here.bounds.get(quota_type)
            if bound is not None:
                yield Link(here.name, bound)
            here = None if here.parent is None else self._by_name[here.parent]


NO_GROUPS: Final = DeclaredGroups()


class Member(KafkaPrincipal):
    """A principal with its declared group, so that the group is looked up once per client, not per request."""

    __slots__ = ("group", "principal")

    group: str | None
    principal: KafkaPrincipal

    def __init__(self, principal: KafkaPrincipal, group: str | None) -> None:
        KafkaPrincipal.__init__(self, principal.type, principal.name)
        object.__setattr__(self, "group", group)
        object.__setattr__(self, "principal", principal)


def _fits(patterns: tuple[Pattern, ...] | None, name: str) -> bool:
    if patterns is None:
        return True
    for pattern in patterns:  # noqa: SIM110 - a generator would take longer than the patterns do
        if pattern.matches(name):
            return True
    return False
