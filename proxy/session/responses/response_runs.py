"""Responses in a row that equal each other: they are found, counted and recorded together.

Only responses to Produce requests or fetches that pass unchanged and are certainly within their quota are recorded here. Everything else
is left to `ResponseSide`, response by response.
"""

from __future__ import annotations

from itertools import islice

from protocol.limits import LENGTH_BYTES, RESPONSE_HEAD_BYTES
from proxy.session.equal_frames import EQUAL_FRAMES_MIN, equal_responses
from proxy.session.in_flight import InFlight
from proxy.session.request_context import FETCH, PRODUCE, RequestContext
from proxy.session.requests.request_side import RequestSide
from proxy.session.responses.answer_bytes import HEAD, SIZE, fetched_sizes, is_plain
from proxy.session.responses.answer_verdicts import AnswerVerdicts
from proxy.session.throttle.throttle_state import ThrottleState
from proxy.telemetry.latency import SHIFT

RESPONSES_MIN = 2  # the fewest that are recorded together
PARSED_BYTES_MAX = 32 * 1024  # a run of responses that have to be parsed has at most this many bytes


Run = tuple[int, int, int, int]
"""Whole responses in a row, to the oldest requests in flight, which have one context: their number, the size of each request (0: the sizes
differ), the sum of these sizes, and the offset after the last response. A plain tuple, since each batch of responses makes one.
"""


class ResponseRuns:
    """The runs of one connection, whose client has several requests in flight."""

    __slots__ = ("_in_flight", "_requests", "_throttle", "_verdicts")

    def __init__(self, in_flight: InFlight, requests: RequestSide, throttle: ThrottleState, verdicts: AnswerVerdicts) -> None:
        self._in_flight = in_flight
        self._requests = requests
        self._throttle = throttle
        self._verdicts = verdicts

    def record(self, data: bytes | memoryview, at: int, now_ms: int, now_ns: int) -> int:
        """Record responses from `at` on, run by run, as far as they are certainly within their quotas.

        Args:
            data: the broker's bytes; no response before `at` is unfinished.
            at: offset of a response.
            now_ms: monotonic milliseconds.
            now_ns: the same time in nanoseconds, for measurements.

        Returns:
            The offset after the recorded responses; `at`: nothing was recorded.
        """
        in_flight, begun = self._in_flight, -1
        while begun < at < len(data) and len(in_flight) >= RESPONSES_MIN:
            begun = at
            at = self._record_run(data, at, now_ms, now_ns)
        return at

    def record_all(self, data: bytes, size: int, now_ms: int, now_ns: int) -> bool:
        """Record the responses to all requests in flight, which were entered together, when they are all of `data` and have one size.

        Args:
            data: the broker's bytes, with no unfinished response before them.
            size: the size of the first response, without its length field, in bytes.
            now_ms: monotonic milliseconds.
            now_ns: the same time in nanoseconds, for measurements.

        Returns:
            Whether they were recorded, as `record` does it; False: nothing was done.
        """
        in_flight, entered, verdicts = self._in_flight, self._requests.last_run, self._verdicts
        if entered is None or in_flight[0] is not entered[2] or in_flight[-1] is not entered[3] or self._throttle.active:
            return False
        correlation_ids, request_size, (_, head, _, _, sent_ns), _ = entered
        count, request_quota = len(in_flight), verdicts.request_time.request_quota
        if size < LENGTH_BYTES or count * (size + LENGTH_BYTES) != len(data) or head.kind != PRODUCE or not head.is_bare:
            return False
        if request_quota is not None and request_quota.enabled and head.work is not None:
            return False
        if equal_responses(data, 0, size, count) != correlation_ids:
            return False
        request_bytes = count * request_size
        if not verdicts.record_run_within(head, count, request_size, request_bytes, now_ms):
            return False
        head.count(count, request_bytes, count * size, request_bytes)
        head.latencies[(now_ns - sent_ns >> SHIFT).bit_length()] += count
        in_flight.clear()
        verdicts.request_time.answers += count
        return True

    def _record_run(self, data: bytes | memoryview, at: int, now_ms: int, now_ns: int) -> int:
        """Record one run; return the offset after it."""
        in_flight, verdicts = self._in_flight, self._verdicts
        head = in_flight[0][1]
        request_quota = verdicts.request_time.request_quota
        if (head.kind != PRODUCE and head.kind != FETCH) or self._throttle.active:
            return at
        if request_quota is not None and request_quota.enabled and head.work is not None:
            return at
        run = (self._find_equal(head, data, at) if head.is_bare else None) or self._find(head, data, at)
        count, request_size, request_bytes, end = run
        if count < RESPONSES_MIN:
            return at
        amount = request_bytes
        if head.kind == PRODUCE:
            if not verdicts.record_run_within(head, count, request_size, amount, now_ms):
                return at
        else:
            sizes = fetched_sizes(data, at, count, head.api.response_header_version)
            amount = sum(sizes)
            if not verdicts.record_fetches_within(head, sizes, amount, now_ms):
                return at
        head.count(count, request_bytes, end - at - count * LENGTH_BYTES, amount)
        self._remove(head, count, now_ns)
        verdicts.request_time.answers += count
        return end

    def _find(self, head: RequestContext, data: bytes | memoryview, at: int) -> Run:
        """Find the whole responses from `at` on that pass unchanged, to requests with the context `head`."""
        is_bare = head.is_bare
        end = len(data) if is_bare else min(len(data), at + PARSED_BYTES_MAX)
        size_of_each = self._in_flight[0][2]
        count = amount = 0
        for expected, other, request_size, _, _ in self._in_flight:
            if other is not head or at + RESPONSE_HEAD_BYTES > end:
                break
            size, correlation_id = HEAD.unpack_from(data, at)
            behind = at + LENGTH_BYTES + size
            if correlation_id != expected or size < LENGTH_BYTES or behind > end:
                break
            if not is_bare and not is_plain(head, data, at, behind):
                break
            if request_size != size_of_each:
                size_of_each = 0
            count += 1
            amount += request_size
            at = behind
        return count, size_of_each, amount, at

    def _find_equal(self, head: RequestContext, data: bytes | memoryview, at: int) -> Run | None:
        """Find all whole responses from `at` on when they have one size and pass unchanged; None: they differ, or are few."""
        if len(data) - at < RESPONSE_HEAD_BYTES:
            return None
        in_flight, (size,) = self._in_flight, SIZE.unpack_from(data, at)
        count = min(len(in_flight), (len(data) - at) // (size + LENGTH_BYTES)) if size >= LENGTH_BYTES else 0
        correlation_ids = equal_responses(data, at, size, count) if count >= EQUAL_FRAMES_MIN else None
        if correlation_ids is None:
            return None
        end = at + count * (size + LENGTH_BYTES)
        expected, contexts, request_sizes, _, _ = zip(*islice(in_flight, count), strict=True)
        if expected != correlation_ids or contexts.count(head) != count:
            return None
        request_size = request_sizes[0]
        is_one_size = request_sizes.count(request_size) == count
        return count, request_size if is_one_size else 0, sum(request_sizes), end

    def _remove(self, head: RequestContext, count: int, now_ns: int) -> None:
        """Remove the oldest requests, which have a response now, and count their latency."""
        in_flight, latencies = self._in_flight, head.latencies
        sent_ns = in_flight[0][4]
        if in_flight[count - 1][4] != sent_ns:
            for _ in range(count):
                latencies[(now_ns - in_flight.popleft()[4] >> SHIFT).bit_length()] += 1
            return
        latencies[(now_ns - sent_ns >> SHIFT).bit_length()] += count  # nearly always: they were forwarded together
        if count == len(in_flight):
            in_flight.clear()
            return
        for _ in range(count):
            in_flight.popleft()
