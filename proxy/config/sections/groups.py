"""`[[group]]`: the operator's declared groups, and the checks of all of them together."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec

from proxy.base.networks import NETWORKS_REMEDY, Networks
from proxy.base.units import SIZE_REMEDY, shown
from proxy.config.toml_reader import Place, Reader
from proxy.config.values import NAME_REMEDY, read_name, read_networks, read_rate
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup, DeclaredGroups
from quota.groups.pattern import Pattern

GROUPS_MAX: Final = 1_000
PATTERNS_MAX: Final = 100
"""Maximum for one condition."""
DEPTH_MAX: Final = 8
"""Maximum depth of a group below its topmost parent: each level costs every request of its members another record."""
PATTERNS_REMEDY: Final = 'a pattern such as "etl-*", or a list of them; * is any run of characters, ? is one'


def _listed(read: Callable[[object], Any], value: object, what: str) -> tuple[Any, ...]:
    """Return one value, or those of a list, without duplicates."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"names no {what}")
    if len(values) > PATTERNS_MAX:
        raise ValueError(f"has more than {PATTERNS_MAX} entries")
    return tuple(dict.fromkeys(read(one) for one in values))


def _pattern(value: object) -> Pattern:
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a pattern")
    try:
        return Pattern(value)
    except ValueError as error:
        raise ValueError(f"{shown(value)} {error}") from None


def _read_patterns(value: object) -> tuple[Pattern, ...]:
    return _listed(_pattern, value, "pattern")


def _read_group_networks(value: object) -> Networks:
    return read_networks([value] if isinstance(value, str) else value)


def _read_listeners(value: object) -> tuple[str, ...]:
    return _listed(read_name, value, "listener")


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{shown(value)} is not a finite number")
    if value <= 0:
        raise ValueError(f"{shown(value)} is not above 0")
    return float(value)


_Patterns = Annotated[tuple[Pattern, ...] | None, Reader(_read_patterns, PATTERNS_REMEDY)]
_Rate = Annotated[float | None, Reader(read_rate, f"bytes per second: {SIZE_REMEDY}")]
_Number = Annotated[float | None, Reader(_read_number, "a number above 0, such as 50.0")]


class GroupMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions of membership; all given ones have to hold."""

    user: _Patterns = None
    client_id: _Patterns = None
    network: Annotated[Networks | None, Reader(_read_group_networks, f'a network such as "10.0.0.0/8", or {NETWORKS_REMEDY}')] = None
    listener: Annotated[tuple[str, ...] | None, Reader(_read_listeners, "the name of a listener, or a list of them")] = None


class GroupBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The common limits of the members."""

    producer_byte_rate: _Rate = None
    consumer_byte_rate: _Rate = None
    request_percentage: _Number = None
    controller_mutation_rate: _Number = None

    @property
    def bounds(self) -> dict[ClientQuotaType, float]:
        """Return the limits in units per second, by type."""
        bounds = {
            ClientQuotaType.PRODUCE: self.producer_byte_rate,
            ClientQuotaType.FETCH: self.consumer_byte_rate,
            ClientQuotaType.REQUEST: self.request_percentage,
            ClientQuotaType.CONTROLLER_MUTATION: self.controller_mutation_rate,
        }
        return {quota_type: float(bound) for quota_type, bound in bounds.items() if bound is not None}


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A declared group."""

    name: Annotated[str, Reader(read_name, NAME_REMEDY)]
    match: GroupMatch | None = None
    """None: a group without members of its own, which is only a parent."""
    budget: GroupBudget | None = None
    parent: Annotated[str | None, Reader(read_name, "the name of another [[group]]")] = None
    pacing: Literal["window", "paced"] | None = None
    """None: as `quotas.pacing`."""
    weight: Annotated[float, Reader(_read_number, "a number above 0, such as 3")] = 1.0
    """Its share among the groups with the same parent, where the parent is paced."""


def declared_groups(groups: Sequence[Group]) -> DeclaredGroups:
    """Return the groups of a validated configuration."""
    return DeclaredGroups(
        [DeclaredGroup(group.name, _conditions(group.match), _bounds(group), group.parent, group.weight) for group in groups]
    )


def check_groups(groups: Iterable[tuple[str, Group]], listeners: Sequence[str], place: Place) -> None:
    """Report contradictions in names, parents, listeners and budgets. `groups` are given with their keys."""
    found = list(groups)
    if len(found) > GROUPS_MAX:
        place.add("group", f"there are {len(found)} groups, at most {GROUPS_MAX} are taken", "write patterns that take in more clients")
        return
    by_name: dict[str, Group] = {}
    keys: dict[str, str] = {}
    for key, group in found:
        if group.name in by_name:
            place.add(f"{key}.name", f'"{group.name}" is the name of {keys[group.name]} too', "write another name")
            continue
        by_name[group.name], keys[group.name] = group, key
    parents = {group.parent for _, group in found}
    for key, group in found:
        _check_parent(key, group, by_name, place)
        _check_match(key, group, listeners, place)
        if group.weight != 1.0 and group.parent is None:
            place.add(f"{key}.weight", "has no effect without a parent", "leave it out, or write the parent that the groups share")
        if not _bounds(group) and group.parent is None:
            place.add(f"{key}.budget", "is missing", "write at least one of " + ", ".join(GroupBudget.__struct_fields__) + ", or a parent")
        if group.match is None and group.name not in parents:
            place.add(f"{key}.match", "is missing, and the group is no other group's parent", "write its members, or leave the group out")


def _check_parent(key: str, group: Group, by_name: dict[str, Group], place: Place) -> None:
    ancestors = [group.name]
    above = group
    while above.parent is not None:
        if above.parent not in by_name:
            if above is group:
                import difflib  # imported here, since a valid file needs no suggestion

                near = difflib.get_close_matches(above.parent, by_name, n=1)
                remedy = f"did you mean {near[0]}?" if near else "write the name of another [[group]]"
                place.add(f"{key}.parent", f'"{above.parent}" is no group', remedy)
            return
        if above.parent in ancestors:
            if above.parent == group.name:
                place.add(f"{key}.parent", f"the group is a part of itself: {' < '.join([*ancestors, group.name])}", "break the circle")
            return
        above = by_name[above.parent]
        ancestors.append(above.name)
    if len(ancestors) > DEPTH_MAX:
        place.add(f"{key}.parent", f"there are {len(ancestors) - 1} groups above", f"write at most {DEPTH_MAX - 1}")


def _check_match(key: str, group: Group, listeners: Sequence[str], place: Place) -> None:
    match = group.match
    if match is None:
        return
    if (match.user, match.client_id, match.network, match.listener) == (None, None, None, None):
        place.add(f"{key}.match", "matches no client", 'write user, client_id, network or listener; client_id = "*" matches every client')
    for name in match.listener or ():
        if name not in listeners:
            place.add(f"{key}.match.listener", f'"{name}" is not a listener', f"write one of {', '.join(listeners)}")


def _bounds(group: Group) -> dict[ClientQuotaType, float]:
    return {} if group.budget is None else group.budget.bounds


def _conditions(match: GroupMatch | None) -> Conditions | None:
    if match is None:
        return None
    listeners = None if match.listener is None else frozenset(match.listener)
    return Conditions(match.user, match.client_id, match.network, listeners)
