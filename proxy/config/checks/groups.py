"""Advice on declared groups: a client is in the first group that matches it, so a group may have no members."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, TypeVar

import msgspec

from proxy.base.networks import Networks
from proxy.config.sections.groups import Group, GroupMatch
from quota.groups.pattern import Pattern

Value = TypeVar("Value")
EVERY: Final = Pattern("*")


def advice_on_groups(groups: Sequence[Group]) -> Iterator[str]:
    """Yield one line for each group whose clients are all in one earlier group."""
    earlier: list[tuple[Group, GroupMatch]] = []
    for group in groups:
        if group.match is None:
            continue
        match = _narrowed(group.match)
        for other, others in earlier:
            if _covers(others, match):
                yield (
                    f'group "{group.name}" has no members: each client that it matches is in group "{other.name}" before it; '
                    f'write it above "{other.name}"'
                )
                break
        else:
            earlier.append((group, match))


def _narrowed(match: GroupMatch) -> GroupMatch:
    """Return the conditions without those that every name fulfils."""
    every = {key: None for key in ("user", "client_id") if any(pattern.covers(EVERY) for pattern in getattr(match, key) or ())}
    return msgspec.structs.replace(match, **every)


def _covers(one: GroupMatch, other: GroupMatch) -> bool:
    """Whether each client that `other` matches is matched by `one`; False is not a proof."""
    return (
        _patterns_cover(one.user, other.user)
        and _patterns_cover(one.client_id, other.client_id)
        and _within(one.listener, other.listener)
        and _networks_cover(one.network, other.network)
    )


def _within(one: Collection[Value] | None, other: Collection[Value] | None) -> bool:
    return one is None or (other is not None and set(other) <= set(one))


def _patterns_cover(one: Sequence[Pattern] | None, other: Sequence[Pattern] | None) -> bool:
    return one is None or (other is not None and all(any(pattern.covers(its) for pattern in one) for its in other))


def _networks_cover(one: Networks | None, other: Networks | None) -> bool:
    if one is None:
        return True
    return other is not None and all(
        any(its.network_address in network and its.prefixlen >= network.prefixlen for network in one) for its in other
    )
