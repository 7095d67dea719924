"""Requests that a schedule admits: Produce, with and without a response, and Fetch."""

from __future__ import annotations

from typing import Final

from proxy.enforcement.mode import INT32_MAX
from proxy.enforcement.paced.group import PacedGroup
from proxy.enforcement.paced.member import Path
from proxy.session.request_context import (
    FETCH,
    NO_ACK,
    PACED_ANSWER,
    PACED_FETCH,
    PACED_NO_ACK,
    PACED_PASS,
    PACED_PRODUCE,
    PASS,
    PRODUCE,
    RequestContext,
)
from proxy.session.requests.fetch_requests import lowered, needs_lowering
from proxy.session.requests.pending_requests import INT32, Stop
from proxy.session.requests.timed_requests import TimedRequests
from proxy.session.requests.usual_requests import UsualRequests
from proxy.session.throttle.paced_admission import limited_group

_CORRELATION_ID_AT: Final = 8
_NEVER_MS: Final = 1 << 62
_OF_WINDOW: Final = {PACED_PASS: PASS, PACED_PRODUCE: PRODUCE, PACED_FETCH: FETCH, PACED_NO_ACK: NO_ACK}


class PacedRequests(UsualRequests):
    """Those requests of one connection.

    Attributes:
        timed: admits them by a schedule of handler time as well; None: there is none.
    """

    __slots__ = ("timed",)

    timed: TimedRequests | None

    def resolve(self, context: RequestContext, now_ms: int) -> RequestContext:
        """Return the context by which requests are handled: another one where their group has a window, or no quota applies."""
        client = context.client
        if context.kind == PACED_PASS:
            return context.of_kind(PASS)
        group = (client.fetch if context.kind == PACED_FETCH else client.produce)(now_ms)
        if isinstance(group, PacedGroup):
            return context
        self._admission.leave_line()
        return context.of_kind(_OF_WINDOW[context.kind])

    def take(
        self, context: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, now_ns: int, read_ms: int, *, ungated: bool
    ) -> bytes | bytearray | None:
        """Forward the request at `at`, or keep it until the schedule admits it.

        Args:
            context: its context, of a kind from `PACED` on.
            data: bytes of the client.
            size: its size.
            now_ms, now_ns: the time, in monotonic milliseconds and nanoseconds.
            read_ms: when it was read.
            ungated: Sluice drains: a Produce waits no longer.

        Returns:
            The bytes to forward, with the request; None: it waits, and is kept.
        """
        client = context.client
        if context.kind == PACED_FETCH:
            return self._take_fetch(context, data, at, size, now_ms, now_ns, read_ms)
        group = limited_group(client.produce(now_ms))
        if group is not None:
            path = group.path_of(client.declared, self._classifier.member)
            if not self._admits(context, group, path, size, data, at, size, now_ms, read_ms, ungated=ungated):
                return None
        else:
            self._admission.leave_line()
        if self.timed is not None and not self.timed.admits(context, data, at, size, now_ms, read_ms, opens=False, ungated=ungated):
            return None
        if group is not None:
            self._admission.produced(group, size, now_ms)
            self._note(context, group, size, now_ms)
        if context.kind == PACED_NO_ACK:
            context.count(1, size, 0, size)
            if context.work is not None:
                client.exempt(int(self._classifier.broker_times.estimate(context.work, size)), now_ms)
            return data
        if context.cell is None:
            client.usage.own_produce_bytes += size
        announces = group is not None and client.is_enforced and group.wait_ms(now_ms) > client.enforcement.delay_max_ms
        self._enter(context.of_kind(PACED_ANSWER if announces else PASS), data, at, size, now_ns, read_ms)
        return data

    def _take_fetch(
        self, context: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, now_ns: int, read_ms: int
    ) -> bytes | bytearray | None:
        admission = self._admission
        group = limited_group(context.client.fetch(now_ms))
        requested = INT32_MAX if context.max_bytes is None else context.max_bytes
        most = reserved = 0
        if group is not None:
            path = group.path_of(context.client.declared, self._classifier.member)
            most, reserved = admission.fetch_bytes(group, path, requested, now_ms)
            if not self._admits(context, group, path, reserved, data, at, size, now_ms, read_ms, ungated=False):
                return None
        if self.timed is not None and not self.timed.admits(context, data, at, size, now_ms, read_ms, opens=False, ungated=False):
            return None
        if group is None:
            admission.fetched(None, 0, 0, now_ms)
        else:
            admission.fetched(group, reserved, most, now_ms)
            self._count_wait(context, group, now_ms)
            if context.client.is_enforced and needs_lowering(context, most):
                data = lowered(context, data, at, most)
        self._enter(context.of_kind(FETCH), data, at, size, now_ns, read_ms)
        return data

    def _admits(
        self,
        context: RequestContext,
        group: PacedGroup,
        path: Path,
        amount: int,
        data: bytes | bytearray,
        at: int,
        size: int,
        now_ms: int,
        read_ms: int,
        *,
        ungated: bool,
    ) -> bool:
        """Whether a request of `amount` bytes by the member of a path passes now; if not, it is kept."""
        admission, throttle, is_fetch = self._admission, self._throttle, context.kind == PACED_FETCH
        client_id, observes = context.client.client_id, context.client.enforcement.only_observes
        if ungated or observes or throttle.logging_in:
            admission.passes_anyway(group, path, client_id, amount, now_ms, is_fetch=is_fetch, observes=observes)
            return True
        wait_max_ms = throttle.wait_max_ms(read_ms) if throttle.session_ends_ms else _NEVER_MS
        if throttle.may_pass_expiring and (now_ms >= wait_max_ms or throttle.session_expiring(now_ms)):
            throttle.passes_while_expiring(amount)
            admission.passes_anyway(group, path, client_id, amount, now_ms, is_fetch=is_fetch, observes=False)
            return True
        if admission.admits_paced(group, path, client_id, amount, now_ms, read_ms, is_fetch=is_fetch):
            return True
        if self.timed is not None:
            self.timed.leave()
        self._pending.keep(data, at, read_ms, Stop.THROTTLE)
        self._pending.resume_at_ms = max(now_ms + 1, min(admission.wait_until_ms, wait_max_ms))
        self._pending.waits_behind_fetch = is_fetch and len(data) > at + size + INT32.size
        return False

    def _note(self, context: RequestContext, group: PacedGroup, size: int, now_ms: int) -> None:
        """Meter a Produce that passes: checked by the schedule, or unchecked before its time."""
        classifier, admission = self._classifier, self._admission
        if classifier.meter is not None:
            if admission.is_on_time:
                classifier.meter.admitted(group, size, admission.waited_ms, now_ms, classifier.number, context.index)
            else:
                classifier.meter.record_unchecked(group, size, now_ms, classifier.number, context.index)
            if not context.client.enforcement.only_observes:
                client_ref = None if context.cell is None else context.cell.client_ref
                classifier.meter.shares.passed(group, classifier.member, client_ref, size, admission.waited_ms, now_ms)
        self._count_wait(context, group, now_ms)

    def _count_wait(self, context: RequestContext, group: PacedGroup, now_ms: int) -> None:
        waited_ms, client = self._admission.waited_ms, context.client
        if waited_ms > 0:
            group.note_wait(waited_ms)
            (client.fetch_throttled if context.kind == PACED_FETCH else client.produce_throttled)(group, waited_ms, now_ms)
            if context.cell is not None:
                context.cell.throttled(waited_ms, waits=not client.enforcement.only_observes)

    def _enter(self, answered: RequestContext, data: bytes | bytearray, at: int, size: int, now_ns: int, read_ms: int) -> None:
        (correlation_id,) = INT32.unpack_from(data, at + _CORRELATION_ID_AT)
        self._in_flight.append((correlation_id, answered, size, read_ms, now_ns))
