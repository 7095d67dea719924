"""Decides whether requests may be forwarded during throttles: the connection's own, and those of departed connections."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import ThrottlingGroup
from proxy.enforcement.quota_scope import ClientQuota
from proxy.session.mutations.charge import is_strict
from proxy.session.request_context import FETCH, MUTATION, NO_ACK, PRODUCE, RequestContext
from proxy.session.throttle.departed_throttles import longest_throttle, take_throttle
from proxy.session.throttle.throttle_state import ThrottleState

GROUPS_SEEN_MAX = 64


class ThrottleChecks:
    """The throttle checks of one connection."""

    __slots__ = ("_awaited", "_groups_seen", "_throttle")

    def __init__(self, throttle: ThrottleState) -> None:
        self._throttle = throttle
        self._groups_seen: set[ThrottlingGroup] | None = None  # groups of this connection's requests
        self._awaited: list[ThrottlingGroup] = []  # groups whose throttles from elsewhere are not known yet

    def inherits(self, context: RequestContext, now_ms: int, *, ungated: bool) -> bool:
        """Take over the longest throttle that a departed connection left to a group, before the first request of the group.

        If throttles that were left elsewhere are not known yet, the request waits until they are (`passes`).
        """
        client, inherits = context.client, False
        seen = self._groups_seen
        if seen is None or len(seen) >= GROUPS_SEEN_MAX:
            seen = self._groups_seen = set()
        for group in _groups_of(context, now_ms):
            if group is None or group in seen:
                continue
            seen.add(group)
            if ungated or not client.is_enforced:
                continue
            found = take_throttle(group, now_ms)
            if found is None and (known_ms := group.throttles_known_ms(now_ms)) > now_ms:
                self._awaited.append(group)
                found = group, known_ms
            if found is not None:
                self._throttle.inherit(client, *found, now_ms)
                inherits = True
        return inherits

    def passes(self, context: RequestContext, size: int, now_ms: int, *, ungated: bool) -> bool:
        """Whether throttles let a request pass. A client that has closed its side also takes over throttles that were left since."""
        throttle, client, kind = self._throttle, context.client, context.kind
        if throttle.session_expiring(now_ms):
            return throttle.passes_while_expiring(size)
        if throttle.departed and not ungated and client.is_enforced:
            for group in _groups_of(context, now_ms):
                found = None if group is None else longest_throttle(group, now_ms)
                if found is not None and found[1] > throttle.throttled_until_ms:
                    throttle.inherit(client, *found, now_ms)
            if not throttle.in_flight_max(now_ms):
                return False
        if self._awaited and not ungated and not self._inherits_awaited(client, now_ms):
            return False
        counted = client.produce(now_ms) if kind in (PRODUCE, NO_ACK) else client.mutation(now_ms) if kind == MUTATION else None
        return throttle.fits_throttle_round(counted, size, now_ms)

    def _inherits_awaited(self, client: ClientQuota, now_ms: int) -> bool:
        """Take over throttles that are known now; return whether the request passes nevertheless."""
        awaited, self._awaited = self._awaited, []
        for group in awaited:
            found = take_throttle(group, now_ms)
            if found is not None:
                self._throttle.inherit(client, *found, now_ms)
        return bool(self._throttle.in_flight_max(now_ms))


def _groups_of(context: RequestContext, now_ms: int) -> tuple[ThrottlingGroup | None, ThrottlingGroup | None]:
    """The groups of a request: for its bytes or mutations, and for its time."""
    client, kind = context.client, context.kind
    if kind == NO_ACK:
        return client.produce(now_ms), None
    timed_by = None if context.work is None or not context.may_inherit else client.request(now_ms)
    if kind == PRODUCE:
        return client.produce(now_ms), timed_by
    if kind == FETCH:
        return client.fetch(now_ms), timed_by
    return client.mutation(now_ms) if kind == MUTATION and not is_strict(context.api) else None, timed_by
