"""The charges of one connection never exceed its elapsed time."""

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from protocol.api_keys import ApiKey
from proxy.handler_time import BrokerHandlerTime, ConnectionHandlerTime, Work, work_of

MS, SECOND = 1_000_000, 1_000_000_000
START_NS = 3_600 * SECOND
KINDS: list[Work] = [
    work_of(key, acks)
    for key, acks in (
        (ApiKey.PRODUCE, 1),
        (ApiKey.PRODUCE, -1),
        (ApiKey.METADATA, None),
        (ApiKey.FETCH, None),
        (ApiKey.OFFSET_COMMIT, None),
    )
]
SEND, READ, BEGIN = range(3)
gaps = st.one_of(st.integers(0, 20_000), st.integers(0, MS), st.integers(0, 3 * SECOND))
steps = st.tuples(
    st.sampled_from([SEND, SEND, READ, READ, BEGIN]), gaps, st.integers(1, 6), st.sampled_from(KINDS), st.integers(0, 2_000_000)
)
Steps = Sequence[tuple[int, int, int, Work, int]]


class Pipe:
    """A connection's outstanding requests and the charges of its responses."""

    def __init__(self, broker: BrokerHandlerTime) -> None:
        self.times = ConnectionHandlerTime(broker)
        self.now_ns = START_NS
        self.charged: list[float] = []
        self._sent: list[tuple[int, Work, int]] = []
        self._begun = False

    def step(self, what: int, gap_ns: int, count: int, kind: Work, size: int) -> None:
        """Advance the clock, then send requests, read whole responses, or read the head of one."""
        self.now_ns += gap_ns
        if what == SEND:
            self._sent += [(self.now_ns, kind, size)] * count
            return
        self._end()
        if what == READ:
            taken, self._sent = self._sent[:count], self._sent[count:]
            for number, (forwarded_ns, work, bytes_) in enumerate(taken):
                behind = len(taken) - 1 - number
                self.charged.append(self.times.charge(work, bytes_, forwarded_ns, self.now_ns, behind))
        elif self._sent:
            forwarded_ns, work, bytes_ = self._sent.pop(0)
            self.charged.append(self.times.charge_head(work, bytes_, forwarded_ns, self.now_ns))
            self._begun = True

    def pause(self, gap_ns: int) -> None:
        """Do not read for `gap_ns`."""
        self.times.pause()
        self.now_ns += gap_ns
        self.times.resume(self.now_ns)

    def _end(self) -> None:
        """Charge the end of a response whose head was read."""
        if self._begun:
            self._begun = False
            self.charged.append(self.times.charge_end(self.now_ns))


@given(st.lists(steps, max_size=60), st.integers(0, MS))
def test_a_connection_is_never_charged_more_than_passed(asked: Steps, rtt_ns: int) -> None:
    """For any sequence of requests and reads the sum of the charges is at most the elapsed time."""
    pipe = Pipe(BrokerHandlerTime())
    pipe.times.set_rtt(rtt_ns)
    for step in asked:
        pipe.step(*step)
        assert all(charged >= 0 for charged in pipe.charged)
        assert sum(pipe.charged) <= pipe.now_ns - START_NS + 1


@given(st.lists(st.tuples(steps, st.one_of(st.none(), gaps)), max_size=60))
def test_pauses_never_make_nonsense(asked: Sequence[tuple[tuple[int, int, int, Work, int], int | None]]) -> None:
    """With pauses at any moment charges and estimates stay finite and are not negative."""
    broker = BrokerHandlerTime()
    pipe = Pipe(broker)
    for step, pause_ns in asked:
        pipe.step(*step)
        if pause_ns is not None:
            pipe.pause(pause_ns)
    assert all(math.isfinite(charged) and charged >= 0 for charged in pipe.charged)
    assert math.isfinite(broker.unit_ns)
    assert broker.unit_ns > 0
    assert broker.load >= 0
    assert broker.elapsed_ns >= 0
    assert all(broker.estimate(kind, size) > 0 for kind in KINDS for size in (0, 100, 10**7))
