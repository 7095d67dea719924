"""A throttle that a closed connection has not served is taken over by the next connection of its group in any worker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.enforcement.mode import Mode
from proxy.shared_usage.departed_rows import DEPARTED_MAX
from proxy.shared_usage.segment import FULL
from tests.support.frames.kafka_frames import produced
from tests.support.memory.departed_pair import DepartedPair
from tests.support.memory.shared_workers import WINDOW_MS, SharedWorker, new_segment
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of
from tests.support.memory.worker_proxies import WorkerProxies
from tests.support.processes.segment_children import throttles_locked

BOUND = 1_000.0
STEPS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 2), st.sampled_from(["leave", "grow", "take"]), st.integers(1, 2_000)))


@given(STEPS, st.integers(1, 2**40))
def test_they_are_those_of_one_process(steps: list[tuple[int, int, str, int]], now_ms: int) -> None:
    """Workers that leave and take over throttles in any order find the same ones as a single process."""
    segment = new_segment(3)
    workers = [SharedWorker(segment, number, BOUND, now_ms) for number in range(3)]
    pair = DepartedPair()
    for step_ms, number, kind, throttle_ms in steps:
        now_ms += step_ms
        group = workers[number].group
        if kind == "take":
            pair.take(group, now_ms)
            continue
        pair.leave(group, throttle_ms, now_ms, grows=kind == "grow")
        assert [worker.group.departed_until(now_ms) for worker in workers] == [pair.alone.longest_until_ms(now_ms)] * 3


def test_beyond_the_limit_the_longest_holds_for_all() -> None:
    """Beyond the limit of a row the longest throttle applies to every new connection until it is over."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, number, BOUND, 0).group for number in (0, 1))
    for at in range(DEPARTED_MAX + 1):
        first.leave_throttle(1_000 + at, 1)
    assert [second.take_throttle(2) for _ in range(3)] == [1_000 + DEPARTED_MAX] * 3
    assert second.take_throttle(1_000 + DEPARTED_MAX) == 0


def test_each_change_of_any_row_has_another_number() -> None:
    """A throttle that is left, one that is taken over, and a row that a group gets change the number; a look at a row does not."""
    segment = new_segment(2)
    group = SharedWorker(segment, 0, BOUND, 0).group
    numbers = [segment.departed.change]
    group.leave_throttle(9_000, 1)
    numbers.append(segment.departed.change)
    group.take_throttle(2)
    numbers.append(segment.departed.change)
    segment.claim(b"another group..."[:16], 1, 3)
    numbers.append(segment.departed.change)
    assert len(set(numbers)) == len(numbers)
    assert group.take_throttle(4) == 0
    assert segment.departed.change == numbers[-1]


def test_a_dead_workers_throttles_stay() -> None:
    """The throttles of a worker that died are taken over once, in whichever worker."""
    segment = new_segment(2)
    dead, other = (SharedWorker(segment, number, BOUND, 0).group for number in (0, 1))
    dead.leave_throttle(9_000, 1)
    segment.exit(0, 0)
    again = SharedWorker(segment, 0, BOUND, 10).group
    assert [again.departed_until(10), other.take_throttle(10), again.take_throttle(10)] == [9_000, 9_000, 0]


def test_clients_of_a_dead_worker_stay_throttled() -> None:
    """When a worker dies, the longest throttle of its open connections applies to every new connection of the group until it is over."""
    segment = new_segment(2)
    dead, other = (SharedWorker(segment, number, BOUND, 0).group for number in (0, 1))
    dead.note_throttled(9_000, 1)
    dead.note_throttled(8_000, 1)
    other.leave_throttle(5_000, 1)
    assert other.departed_until(2) == 5_000
    segment.exit(0, 10)
    again = SharedWorker(segment, 0, BOUND, 10).group
    assert [other.take_throttle(10), again.take_throttle(20), other.take_throttle(8_999)] == [9_000] * 3
    assert again.departed_until(9_000) == 0


def test_throttles_of_closed_connections_are_left_once() -> None:
    """A worker that ends in order has closed its connections: they have left their throttles, and nothing is added."""
    segment = new_segment(2)
    ended, other = (SharedWorker(segment, number, BOUND, 0).group for number in (0, 1))
    ended.note_throttled(9_000, 1)
    segment.clear_throttled(0)
    segment.exit(0, 10)
    assert other.departed_until(10) == 0


def test_a_throttle_that_is_over_is_not_left() -> None:
    """A worker that dies after the throttles of its connections leaves none."""
    segment = new_segment(2)
    dead, other = (SharedWorker(segment, number, BOUND, 0).group for number in (0, 1))
    dead.note_throttled(9_000, 1)
    segment.exit(0, 9_000)
    assert other.departed_until(9_000) == 0


def test_a_row_with_throttles_is_not_given_away() -> None:
    """A row with a throttle that no connection has taken over is not given to another group."""
    segment = new_segment(1, rows_max=1)
    worker = SharedWorker(segment, 0, BOUND, 0)
    worker.record(1, 0)
    worker.group.leave_throttle(60_000, 0)
    worker.group.leave()
    other = (1).to_bytes(16, "little")
    assert segment.claim(other, 0, 20 * WINDOW_MS) == FULL
    again = SharedWorker(segment, 0, BOUND, 20 * WINDOW_MS).group
    assert again.take_throttle(20 * WINDOW_MS) == 60_000
    again.leave()
    row = segment.claim(other, 0, 20 * WINDOW_MS)
    assert (row, segment.departed.until_ms(row)) == (0, 0)


def test_under_the_key_of_a_scope_that_became_known_they_are_left_once() -> None:
    """When a broker's node id becomes known, the throttles of its groups move along and are taken over once."""
    segment = new_segment(2)
    workers = [SharedWorker(segment, number, BOUND, 0, scope_key="address") for number in (0, 1)]
    workers[0].group.leave_throttle(9_000, 1)
    assert workers[1].group.departed_until(2) == 9_000
    for worker in workers:
        worker.scope.rescope("id")
        worker.group.departed_until(3)
        worker.publish(13)
    assert [worker.group.take_throttle(20) for worker in workers] == [9_000, 0]


def test_while_another_process_changes_them_none_is_lost() -> None:
    """A throttle left while another process holds the row's lock is published later, and new connections wait meanwhile."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, number, BOUND, 0) for number in (0, 1))
    first.group.leave_throttle(8_000, 1)
    with throttles_locked(segment):
        second.group.leave_throttle(9_000, 2)
        assert [first.group.take_throttle(3), first.group.take_throttle(3), second.group.departed_until(3)] == [8_000, 8_000, 9_000]
    second.publish(15)
    assert [first.group.take_throttle(16) for _ in range(3)] == [9_000, 8_000, 0]


def test_a_throttle_that_grows_is_left_once() -> None:
    """The longer throttle of a connection replaces its first one, also while that is not yet published."""
    segment = new_segment(2)
    first, second = (SharedWorker(segment, number, BOUND, 0) for number in (0, 1))
    first.group.leave_throttle(1, 0)
    with throttles_locked(segment):
        first.group.leave_throttle(8_000, 2)
    first.group.leave_throttle(9_000, 3, instead_of_ms=8_000)
    first.publish(12)
    assert [second.group.take_throttle(13) for _ in range(2)] == [9_000, 0]


# --- a client that closes its connections in order not to wait

ATTACK_MS = 4_000
ATTACK_BOUND = 10_000.0
REQUEST_BYTES = 20_000


def passed_by_leaving(workers: int, mode: Mode, pause_ms: int) -> int:
    """Produce, close after each response and reconnect to the next worker; return the bytes forwarded in 4 s."""
    passed = 0
    with WorkerProxies(workers, produce=ATTACK_BOUND, mode=mode) as proxies:
        end_ms = proxies.now_ms + ATTACK_MS
        while proxies.now_ms < end_ms:
            peer = proxies.connect()
            for number in peer.sends(produce_of(REQUEST_BYTES, 1)):
                passed += REQUEST_BYTES
                peer.broker.arrive(produced(number, version=PRODUCE_VERSION))
            proxies.wait(pause_ms)
            peer.connection.client.connection_lost(ConnectionResetError())
        return passed


@pytest.mark.parametrize("mode", [Mode.DELAY, Mode.MUTE])
@pytest.mark.parametrize("pause_ms", [10, 200])
def test_who_comes_back_to_another_worker_gets_no_more(mode: Mode, pause_ms: int) -> None:
    """A client that reconnects to the next worker after each response passes no more than with a single process."""
    assert passed_by_leaving(4, mode, pause_ms) <= passed_by_leaving(1, mode, pause_ms)
