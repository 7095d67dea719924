"""What debts mean for the requests of one connection: its own, and those that departed connections left to its groups."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import Stepper
from proxy.session.mutations.charge import is_strict
from proxy.session.request_context import FETCH, MUTATION, NO_ACK, PRODUCE, RequestContext
from proxy.session.throttle.departed_debts import longest_debt, take_debt
from proxy.session.throttle.throttle_state import ThrottleState

GROUPS_MET_MAX = 64


class DebtChecks:
    """Those of one connection."""

    __slots__ = ("_debt", "_groups_met")

    def __init__(self, debt: ThrottleState) -> None:
        self._debt = debt
        self._groups_met: set[Stepper] | None = None  # that a request of this connection counts for

    def inherits(self, context: RequestContext, now_ms: int, *, ungated: bool) -> bool:
        """Before the first request of each group: take over the longest debt that a departed connection left to it."""
        client, inherits = context.client, False
        met = self._groups_met
        if met is None or len(met) >= GROUPS_MET_MAX:
            met = self._groups_met = set()
        for group in _groups_of(context, now_ms):
            if group is None or group in met:
                continue
            met.add(group)
            if ungated or not client.is_enforced:
                continue
            debt = take_debt(group, now_ms)
            if debt is not None:
                self._debt.inherit(client, *debt, now_ms)
                inherits = True
        return inherits

    def passes(self, context: RequestContext, size: int, now_ms: int, *, ungated: bool) -> bool:
        """Whether a request may go on as far as debts say: also those that were left meanwhile, where its client has closed its side."""
        debt, client, kind = self._debt, context.client, context.kind
        if debt.session_expiring(now_ms):
            return debt.passes_while_expiring(size)
        if debt.departed and not ungated and client.is_enforced:
            for group in _groups_of(context, now_ms):
                found = None if group is None else longest_debt(group, now_ms)
                if found is not None and found[1] > debt.debt_until_ms:
                    debt.inherit(client, *found, now_ms)
            if not debt.in_flight_max(now_ms):
                return False
        counted = client.produce(now_ms) if kind in (PRODUCE, NO_ACK) else client.mutation(now_ms) if kind == MUTATION else None
        return debt.step_passes(counted, size, now_ms)


def _groups_of(context: RequestContext, now_ms: int) -> tuple[Stepper | None, Stepper | None]:
    """The groups that a request counts for: of its bytes or mutations, and of its time."""
    client, kind = context.client, context.kind
    if kind == NO_ACK:
        return client.produce(now_ms), None
    timed_by = None if context.work is None or not context.may_inherit else client.request(now_ms)
    if kind == PRODUCE:
        return client.produce(now_ms), timed_by
    if kind == FETCH:
        return client.fetch(now_ms), timed_by
    return client.mutation(now_ms) if kind == MUTATION and not is_strict(context.api) else None, timed_by
