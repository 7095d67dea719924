"""Fetches on their way to the broker: each is checked before it is forwarded, and requests no more than its quota allows."""

from __future__ import annotations

from protocol.limits import HEAD_BYTES, LENGTH_BYTES
from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import INT32_MAX, Mode
from proxy.session.request_context import FETCH_WAIT_MS_MAX, RequestContext
from proxy.session.requests.admitted_requests import AdmittedRequests
from proxy.session.requests.pending_requests import HEAD, INT32, Stop
from proxy.session.throttle.fetch_admission import FetchAdmission
from quota.entity import UNLIMITED

_NEVER_MS = 1 << 62
_OBSERVE = Mode.OBSERVE  # an Enum member is looked up by a call


class FetchRequests(AdmittedRequests[FetchAdmission]):
    """The fetches of one connection."""

    __slots__ = ()

    def pass_run(
        self, context: RequestContext, data: bytes | bytearray, at: int, most: int, size_max: int, now_ms: int, now_ns: int, read_ms: int
    ) -> tuple[bytes | bytearray, int]:
        """Forward the fetch at `at`, and equal ones behind it, up to one that has to wait, which is kept and stops the scan.

        Args:
            context: the context of all of them.
            data: bytes of the client.
            at: offset of the first one.
            most: maximum number to forward.
            size_max: maximum size of a frame.
            now_ms: monotonic milliseconds.
            now_ns: the same time in nanoseconds.
            read_ms: when they were read.

        Returns:
            The bytes to forward, and the offset after the last fetch that is forwarded.
        """
        admission, append, end = self._admission, self._in_flight.append, len(data) - HEAD_BYTES
        group = context.client.fetch(now_ms)
        if group is not None and (group.bound >= UNLIMITED or context.client.enforcement.mode is _OBSERVE):
            group = None
        size, _, correlation_id = HEAD.unpack_from(data, at)
        while True:
            if group is None:
                admission.forwarded(None)
            elif not self._admit(group, context, data, at, size, now_ms, read_ms):
                break
            elif needs_lowering(context, admission.bytes_max):
                data = lowered(context, data, at, admission.bytes_max)
            append((correlation_id, context, size, read_ms, now_ns))
            most -= 1
            at += size + LENGTH_BYTES
            if not most or at > end:
                break
            size, index, correlation_id = HEAD.unpack_from(data, at)
            if index != context.index or not data.startswith(context.prefix, at + HEAD_BYTES) or not context.size_min <= size <= size_max:
                break
        return data, at

    def _admit(
        self, group: EnforcedGroup, context: RequestContext, data: bytes | bytearray, at: int, size: int, now_ms: int, read_ms: int
    ) -> bool:
        """Check a fetch before it is forwarded; False: it waits."""
        admission, throttle = self._admission, self._throttle
        if group.bound != context.cap_bound:
            context.cap_bytes = _fetch_bytes_max(group, context)
            context.is_lowered = needs_lowering(context, context.cap_bytes)
            context.cap_bound = group.bound
        if not throttle.session_ends_ms and admission.passes_behind(group, context.cap_bytes, now_ms):
            return True
        wait_max_ms = throttle.wait_max_ms(read_ms) if throttle.session_ends_ms else _NEVER_MS
        is_expiring = throttle.may_pass_expiring and (now_ms >= wait_max_ms or throttle.session_expiring(now_ms))
        has_throttle_round = is_expiring or throttle.has_throttle_round(group)
        if self._in_flight and not has_throttle_round and not admission.may_follow(group, now_ms):
            admission.leave_queue()
            self._pending.keep_over(data, at, len(self._in_flight), now_ms, read_ms)
            return False
        if not admission.admits(group, context.cap_bytes, now_ms, read_ms, has_throttle_round=has_throttle_round):
            if admission.throttle_ms > 0:
                context.client.fetch_throttled(group, admission.throttle_ms, now_ms)
                self._note_wait(group, context, admission.throttle_ms, now_ms)
            self._pending.keep(data, at, read_ms, Stop.THROTTLE)
            self._pending.resume_at_ms = min(admission.wait_until_ms, wait_max_ms)
            self._pending.waits_behind_fetch = len(data) > at + size + LENGTH_BYTES
            return False
        if is_expiring:
            throttle.passes_while_expiring(admission.bytes_max)
        admission.forwarded(group)
        return True

    def _note_wait(self, group: EnforcedGroup, context: RequestContext, throttle_ms: int, now_ms: int) -> None:
        """Meter the wait of a fetch. It has recorded nothing, so only the trace shows the wait, beside the client's usage."""
        classifier = self._classifier
        if classifier.meter is not None:
            classifier.meter.note(group.limiting, context.cap_bytes, throttle_ms, throttle_ms, now_ms, classifier.number, context.index)
        if context.cell is not None:
            context.cell.throttled(throttle_ms, waits=True)


def _fetch_bytes_max(group: EnforcedGroup, context: RequestContext) -> int:
    """Return the most bytes of a fetch: what it requests, limited to what the quota's window can hold. Source: Kafka 3.8, the fetch cap."""
    asked = INT32_MAX if context.max_bytes is None else context.max_bytes
    return int(min(group.max_value_in_window(), asked))


def needs_lowering(context: RequestContext, bytes_max: int) -> bool:
    """Whether a fetch requests more than `bytes_max`, or may wait at the broker for too long."""
    return context.waits_long or (context.max_bytes is not None and bytes_max < context.max_bytes)


def lowered(context: RequestContext, data: bytes | bytearray, at: int, bytes_max: int) -> bytearray:
    """Lower max_bytes of a fetch, and min_bytes with it, as Kafka does; otherwise it would always exceed the quota.

    Its max_wait_ms is lowered, too: others wait for what it may return, also if it returns nothing.
    """
    patched = data if isinstance(data, bytearray) else bytearray(data)
    if context.max_bytes is not None and bytes_max < context.max_bytes:
        INT32.pack_into(patched, at + context.max_bytes_at, bytes_max)
        if context.min_bytes > bytes_max:
            INT32.pack_into(patched, at + context.min_bytes_at, bytes_max)
    if context.waits_long:
        INT32.pack_into(patched, at + context.max_wait_ms_at, FETCH_WAIT_MS_MAX)
    return patched
