"""Estimates the handler time of each response of one connection.

A proxy knows when it forwarded a request and when the response arrived. The duration includes network travel, queueing, work of the
broker's threads, and waits for records, replicas or other members of a group. A request quota limits the work only. The estimate is the
smaller of two values:

* the duration, less the network round trip and the wake-up of the broker's threads, multiplied by the share of the rest that small
  requests spend in threads and not in queues;
* the cost of such requests without waits: a low percentile of the first value by kind and size, updated with each response. Where every
  request waits, this percentile is not meaningful, so it is capped at a small multiple of the cost of a small request that does not wait.
"""

from __future__ import annotations

from typing import Final

from proxy.handler_time.broker import BrokerHandlerTime
from proxy.handler_time.work import IDLE_BROKER_SHARE, Work

ANSWERS_PER_RTT: Final = 64
HANDOVERS_NS: Final = 42_000
"""Time to wake the broker's threads that a request passes through. It is small beside the work of a request that finds the threads idle
and the caches cold, and as long as the work of a request right after another one. At most half of the duration counts as wake-up."""
NEVER_NS: Final = 2**63


class ConnectionHandlerTime:
    """The responses of one connection to a broker, in order.

    Attributes:
        broker: the model of the broker, which all its connections share.
        way_ns: the kernel's smallest round-trip time plus the wake-up time of a broker's threads.
        rtt_due: number of responses until the round-trip time should be read again; 0 and below: now.
        read_since_ns: start of reading without a pause. Responses to earlier requests are charged the estimated cost, and do not change
            the model.
    """

    __slots__ = (
        "_charged_ns",
        "_end_ns",
        "_forwarded_ns",
        "_joined",
        "_joined_ns",
        "_left_ns",
        "_size",
        "_work",
        "broker",
        "read_since_ns",
        "rtt_due",
        "way_ns",
    )

    def __init__(self, broker: BrokerHandlerTime) -> None:
        self.broker = broker
        self.way_ns = HANDOVERS_NS
        self.rtt_due = 0
        self.read_since_ns = 0
        self._end_ns = 0  # when the last response was complete
        self._joined = 0  # responses of the last read, the time before the read, and the part of it that is not charged yet
        self._joined_ns = 0.0
        self._left_ns = 0.0
        self._work: Work | None = None  # of the response that is not complete yet, with the time charged at its head
        self._size = 0
        self._forwarded_ns = 0
        self._charged_ns = 0.0

    @property
    def rtt_ns(self) -> int:
        """The kernel's smallest round-trip time in nanoseconds; 0 before the first `set_rtt`."""
        return self.way_ns - HANDOVERS_NS

    def set_rtt(self, rtt_ns: int) -> None:
        """Set the smallest round-trip time, as read from the kernel."""
        self.way_ns = rtt_ns + HANDOVERS_NS
        self.rtt_due = ANSWERS_PER_RTT

    def pause(self) -> None:
        """Note that the socket is not read: the arrival times of responses are unknown from now on."""
        self.read_since_ns = NEVER_NS

    def resume(self, now_ns: int) -> None:
        """Note that the socket is read again from `now_ns` on."""
        self.read_since_ns = now_ns

    def charge(self, work: Work, size: int, forwarded_ns: int, now_ns: int, behind_bytes: int) -> float:
        """Return the time to charge for a complete response, in nanoseconds.

        Args:
            size: bytes of the request for Produce, of the response otherwise.
            forwarded_ns: when the last byte of the request was forwarded to the broker, monotonic.
            now_ns: when the response was read, monotonic.
            behind_bytes: number of bytes that follow in the same read; 0: this response is the last of the read.
        """
        self.rtt_due -= 1
        end_ns = self._end_ns
        if now_ns == end_ns or behind_bytes or forwarded_ns < self.read_since_ns:
            return self._charge_unsure(work, size, forwarded_ns, now_ns, last=not behind_bytes)
        self._end_ns = now_ns
        if forwarded_ns >= end_ns:  # `_passed`, inlined
            elapsed_ns = now_ns - forwarded_ns
            passed_ns = elapsed_ns - self.way_ns
            if passed_ns < HANDOVERS_NS:
                passed_ns = (passed_ns + HANDOVERS_NS) // 2
            return self.broker.charge(work, size, elapsed_ns, passed_ns * IDLE_BROKER_SHARE, now_ns)
        elapsed_ns = now_ns - end_ns  # the round trip overlapped with the previous response
        return self.broker.charge(work, size, elapsed_ns, elapsed_ns * work.behind, now_ns)

    def charge_head(self, work: Work, size: int, forwarded_ns: int, now_ns: int) -> float:
        """Return the time to charge when the beginning of a response has arrived, in nanoseconds; `charge_end` returns the rest."""
        self.rtt_due -= 1
        self._work, self._size, self._forwarded_ns = work, size, forwarded_ns
        charged_ns = self.broker.estimate(work, size)
        if forwarded_ns >= self.read_since_ns:
            _, passed_ns = self._passed(work, forwarded_ns, now_ns)
            charged_ns = min(charged_ns, self.broker.share(passed_ns))
        self._charged_ns = charged_ns
        return charged_ns

    def charge_end(self, now_ns: int) -> float:
        """Return the rest to charge when the response of `charge_head` is complete, in nanoseconds."""
        work, self._work = self._work, None
        if work is None:
            return 0.0
        if self._forwarded_ns < self.read_since_ns:
            charged_ns = self.broker.estimate(work, self._size)
        else:
            elapsed_ns, passed_ns = self._passed(work, self._forwarded_ns, now_ns)
            charged_ns = self.broker.charge(work, self._size, elapsed_ns, passed_ns, now_ns)
        self._begin_read(now_ns, 0.0)
        return max(0.0, charged_ns - self._charged_ns)

    def _charge_unsure(self, work: Work, size: int, forwarded_ns: int, now_ns: int, *, last: bool) -> float:
        """Return the time to charge for a response without a known duration: reading paused, or the read contained several responses."""
        broker = self.broker
        if forwarded_ns < self.read_since_ns:
            self._end_ns = now_ns
            return broker.estimate(work, size)
        if now_ns != self._end_ns:  # the first of a read: all responses of a read are charged at most the time before it
            elapsed_ns, passed_ns = self._passed(work, forwarded_ns, now_ns)
            broker.saw(work, elapsed_ns, now_ns)
            self._begin_read(now_ns, passed_ns)
            known_ns = broker.estimate(work, size)
        elif last:
            self._joined += 1
            known_ns = broker.charge(work, size, 0, self._joined_ns / self._joined, now_ns)
        else:
            self._joined += 1
            known_ns = broker.estimate(work, size)
        charged_ns = min(known_ns, self._left_ns)
        self._left_ns -= charged_ns
        return charged_ns

    def _begin_read(self, now_ns: int, passed_ns: float) -> None:
        """Start a read: all its responses share the time before it."""
        self._end_ns = now_ns
        self._joined, self._joined_ns, self._left_ns = 1, passed_ns, self.broker.share(passed_ns)

    def _passed(self, work: Work, forwarded_ns: int, now_ns: int) -> tuple[int, float]:
        """Return the duration of a response, and the upper bound of the handler time in it, both in nanoseconds.

        A response to a request that was sent before the previous response has no round trip: it overlapped with that response.
        """
        if forwarded_ns >= self._end_ns:
            elapsed_ns = now_ns - forwarded_ns
            passed_ns = elapsed_ns - self.way_ns
            if passed_ns < HANDOVERS_NS:
                passed_ns = (passed_ns + HANDOVERS_NS) // 2
            return elapsed_ns, passed_ns * IDLE_BROKER_SHARE
        elapsed_ns = now_ns - self._end_ns
        return elapsed_ns, elapsed_ns * work.behind
