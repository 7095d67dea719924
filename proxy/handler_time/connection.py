"""Estimates the time that a broker's threads worked for each answer of one connection.

What a proxy sees of a request is when it left and when its answer came; in between it travelled, stood in queues, was worked on, and may
have waited for records, replicas or other members of a group. Work is what a quota is about. The estimate is the smaller of two:

* what passed, less the way there and back and what threads take to hand a request on, times the share that small requests spend with
  threads rather than in queues;
* what such requests cost when nothing holds them up: a low percentile of the former, by kind and size, learnt as traffic passes. Where
  every request waits such a percentile means nothing, so it is capped at a few times what a small prompt request costs.
"""

from __future__ import annotations

from typing import Final

from proxy.handler_time.broker import BrokerHandlerTime
from proxy.handler_time.work import ALONE, Work

ANSWERS_PER_RTT: Final = 64
HANDOVERS_NS: Final = 42_000
"""What it takes to wake the threads that a request goes through at a broker: next to nothing beside the work of one that finds them asleep
and cold, as much as the work of one that comes right behind another. It is no more than half of what passed."""
NEVER_NS: Final = 2**63


class ConnectionHandlerTime:
    """The answers of one connection to a broker, in order.

    Attributes:
        broker: what is known of the broker; shared.
        way_ns: the smallest round trip that the kernel has seen, and the time between a broker's threads.
        rtt_due: answers until it should be asked again; 0 and below: now.
        read_since_ns: since when this side has been read without a pause; answers to requests that left before are charged what
            such requests cost, and nothing is learnt from them.
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
        self._end_ns = 0  # when the last answer was here in whole
        self._joined = 0  # answers of the last read, the time before it, and what was not charged of that yet
        self._joined_ns = 0.0
        self._left_ns = 0.0
        self._work: Work | None = None  # of the answer whose end is to come, and what it was charged at its head
        self._size = 0
        self._forwarded_ns = 0
        self._charged_ns = 0.0

    @property
    def rtt_ns(self) -> int:
        """The smallest round trip that the kernel has seen; 0 before it was asked."""
        return self.way_ns - HANDOVERS_NS

    def set_rtt(self, rtt_ns: int) -> None:
        """The smallest round trip as the kernel says now."""
        self.way_ns = rtt_ns + HANDOVERS_NS
        self.rtt_due = ANSWERS_PER_RTT

    def pause(self) -> None:
        """This side is not read from now on: nothing is known of when answers come."""
        self.read_since_ns = NEVER_NS

    def resume(self, now_ns: int) -> None:
        """It is read again."""
        self.read_since_ns = now_ns

    def charge(self, work: Work, size: int, forwarded_ns: int, now_ns: int, behind_bytes: int) -> float:
        """Return what to charge for an answer that is here in whole, in nanoseconds.

        Args:
            size: bytes of the request for Produce, of the answer otherwise.
            forwarded_ns: when the last byte of its request left for the broker.
            now_ns: when the answer was read.
            behind_bytes: how many bytes follow in the same read; 0: this answer is the last one of it.
        """
        self.rtt_due -= 1
        end_ns = self._end_ns
        if now_ns == end_ns or behind_bytes or forwarded_ns < self.read_since_ns:
            return self._charge_unsure(work, size, forwarded_ns, now_ns, last=not behind_bytes)
        self._end_ns = now_ns
        if forwarded_ns >= end_ns:  # `_passed`, in place
            elapsed_ns = now_ns - forwarded_ns
            passed_ns = elapsed_ns - self.way_ns
            if passed_ns < HANDOVERS_NS:
                passed_ns = (passed_ns + HANDOVERS_NS) // 2
            return self.broker.charge(work, size, elapsed_ns, passed_ns * ALONE, now_ns)
        elapsed_ns = now_ns - end_ns  # who stood behind another one has no way to pay for
        return self.broker.charge(work, size, elapsed_ns, elapsed_ns * work.behind, now_ns)

    def charge_head(self, work: Work, size: int, forwarded_ns: int, now_ns: int) -> float:
        """Return what to charge now for an answer of which the beginning is here; `charge_end` says the rest."""
        self.rtt_due -= 1
        self._work, self._size, self._forwarded_ns = work, size, forwarded_ns
        charged_ns = self.broker.estimate(work, size)
        if forwarded_ns >= self.read_since_ns:
            _, passed_ns = self._passed(work, forwarded_ns, now_ns)
            charged_ns = min(charged_ns, self.broker.share(passed_ns))
        self._charged_ns = charged_ns
        return charged_ns

    def charge_end(self, now_ns: int) -> float:
        """Return what the answer that began with `charge_head` cost beyond what was charged then, now that it is here in whole."""
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
        """An answer whose own time is not known: reading paused meanwhile, or it came out of one read with others."""
        broker = self.broker
        if forwarded_ns < self.read_since_ns:
            self._end_ns = now_ns
            return broker.estimate(work, size)
        if now_ns != self._end_ns:  # the first of a read: all of them together are charged no more than the time before it
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
        """Answers that come out of one read share the time that passed before it."""
        self._end_ns = now_ns
        self._joined, self._joined_ns, self._left_ns = 1, passed_ns, self.broker.share(passed_ns)

    def _passed(self, work: Work, forwarded_ns: int, now_ns: int) -> tuple[int, float]:
        """How long an answer took, and how much of that may be work; the way is nothing to who stood behind another one."""
        if forwarded_ns >= self._end_ns:
            elapsed_ns = now_ns - forwarded_ns
            passed_ns = elapsed_ns - self.way_ns
            if passed_ns < HANDOVERS_NS:
                passed_ns = (passed_ns + HANDOVERS_NS) // 2
            return elapsed_ns, passed_ns * ALONE
        elapsed_ns = now_ns - self._end_ns
        return elapsed_ns, elapsed_ns * work.behind
