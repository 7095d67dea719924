"""Controller mutations for the meter: each operation on a token bucket, with the balance before and after it."""

from __future__ import annotations

from metering_format.event_kinds import ASKED, REFUSED
from proxy.enforcement.groups.enforced_groups import EnforcedMutationGroup
from proxy.enforcement.quota_scope import ClientQuota
from proxy.meter.meter import BucketStep, Meter

Balances = tuple[tuple[float, int], ...]
"""Of a group and its parents: balance, and its time in ms."""


class MutationNotes:
    """Records the mutations of one connection's topics, and the balances of its group and the parents."""

    __slots__ = ("_meter", "_number")

    def __init__(self, meter: Meter | None, number: int) -> None:
        self._meter = meter
        self._number = number

    def found(self, group: EnforcedMutationGroup) -> Balances:
        """Return the balances before an operation; empty when nothing is metered."""
        return () if self._meter is None else tuple(one.balance for one in _chain(group))

    def note(
        self,
        client: ClientQuota,
        group: EnforcedMutationGroup,
        kind: int,
        permits: int,
        found: Balances,
        throttle_ms: int,
        api_index: int,
        now_ms: int,
    ) -> None:
        """Record an operation that was just done, for every bucket of the chain with its own throttle time.

        Args:
            kind: `CHARGED`, `REFUSED`, `OWED` or `SETTLED` of `metering_format.event_kinds`.
            found: the balances before it.
            throttle_ms: the longest throttle time.
        """
        if self._meter is None:
            return
        applied_ms = 0 if client.enforcement.only_observes else throttle_ms
        for one, before in zip(_chain(group), found, strict=True):
            own_kind = ASKED if kind == REFUSED and not EnforcedMutationGroup.is_exhausted(one, now_ms) else kind
            own_ms = one.throttle_time_ms(now_ms) if throttle_ms else 0
            step = BucketStep(own_kind, permits, *before, one.tokens(now_ms))
            self._meter.mutation(one, step, own_ms, applied_ms if own_ms > 0 else 0, now_ms, self._number, api_index)


def _chain(group: EnforcedMutationGroup) -> list[EnforcedMutationGroup]:
    chain, above = [group], group.parent
    while above is not None:
        chain.append(above)
        above = above.parent
    return chain
