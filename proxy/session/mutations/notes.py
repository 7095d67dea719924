"""Controller mutations for the meter: a token bucket is no sensor, so a trace alone tells of them."""

from __future__ import annotations

from proxy.metering.meter import Meter
from proxy.session.quota_scope import ClientQuota
from quota.mutation_group import MutationGroup


class MutationNotes:
    """Notes what one connection's topics cost, and what that left in the bucket."""

    __slots__ = ("_meter", "_number")

    def __init__(self, meter: Meter | None, number: int) -> None:
        self._meter = meter
        self._number = number

    def note(
        self,
        client: ClientQuota,
        group: MutationGroup,
        permits: int,
        throttle_ms: int,
        api_index: int,
        now_ms: int,
        *,
        is_refused: bool = False,
    ) -> None:
        """Note `permits` that were charged (negative: given back) or, with a wait, refused or charged and waited for."""
        if self._meter is None:
            return
        limiting, one = group.limiting, None if is_refused else group
        if is_refused:
            self._note(client, limiting, permits, throttle_ms, api_index, now_ms)
        while one is not None:
            self._note(client, one, permits, throttle_ms if one is limiting else 0, api_index, now_ms)
            one = one.parent

    def _note(self, client: ClientQuota, group: MutationGroup, permits: int, throttle_ms: int, api_index: int, now_ms: int) -> None:
        assert self._meter is not None
        applied_ms = 0 if client.enforcement.only_observes else throttle_ms
        self._meter.note(group, permits, throttle_ms, applied_ms, now_ms, self._number, api_index, group.tokens(now_ms))
