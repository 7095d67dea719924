"""Workers share a memory segment with one row per group."""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from unittest.mock import Mock

import pytest

from proxy.shared_usage.segment import FULL, LOCKED, TAKEN, VERSION, Segment, SegmentError
from proxy.shared_usage.segment_row import SegmentRow
from tests.support.memory.shared_workers import WINDOW_MS, SharedWorker, new_segment
from tests.support.processes.segment_children import hold_lock, record_many

BOUND = 1_000.0
RECORDS = 100_000
OLD_MS = 60_000


def digest(number: int) -> bytes:
    """Return the digest of a group whose search for a row begins at `number`."""
    return number.to_bytes(8, "little") + number.to_bytes(8, "little")


def child(target: Callable[..., None], segment: Segment, *args: int) -> tuple[ForkProcess, Connection]:
    """Start a process that attaches to the segment by an inherited descriptor; return it and a pipe to it."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=target, args=(segment.descriptor, theirs, *args))
    process.start()
    theirs.close()
    return process, ours


def test_a_segment_is_found_by_its_descriptor() -> None:
    """Another mapping of the same memory has the same settings and sees what the first one wrote."""
    first = Segment.create(3, 100, 11, 2_000)
    second = Segment(os.dup(first.descriptor))
    assert (second.workers, second.rows_max, second.slots, second.slot_ms) == (3, 100, 12, 2_000)
    first.store_heartbeat(2, 12_345)
    assert [second.heartbeat_ms(worker) for worker in range(3)] == [0, 0, 12_345]
    first.exit(2, 0)
    assert second.heartbeat_ms(2) == 0


def test_another_version_is_refused_by_its_number() -> None:
    """A segment of another version, or a file that is no segment, is refused with an error that says so."""
    segment = Segment.create(2, 10, 11, 1_000)
    segment.words[1] = VERSION + 1
    with pytest.raises(SegmentError, match=f"version {VERSION + 1}, .* version {VERSION}$"):
        Segment(segment.descriptor)
    segment.words[0] = 0
    with pytest.raises(SegmentError, match="no segment"):
        Segment(segment.descriptor)


def test_no_other_user_reads_it_and_no_process_shortens_it() -> None:
    """Only the owner can open the memory file, and no process can shrink it."""
    segment = new_segment(2)
    assert os.fstat(segment.descriptor).st_mode & 0o777 == 0o600
    with pytest.raises(PermissionError):
        os.truncate(segment.descriptor, 4_096)


def test_a_digest_has_one_row() -> None:
    """All workers find the same row for a digest, and digests that collide get different rows."""
    segment = new_segment(2, rows_max=4)
    same_place = [digest(1), digest(5), digest(9)]
    rows = [segment.claim(one, 0, OLD_MS) for one in same_place]
    assert sorted(rows) == [1, 2, 3]
    assert [segment.claim(one, 1, OLD_MS) for one in same_place] == rows
    assert segment.claim(digest(1), 0, OLD_MS) == TAKEN


def test_a_full_segment_has_no_row_until_one_is_left_and_old() -> None:
    """In a full segment a row is given to another group only when no worker uses it and its usage is outside the window."""
    segment = new_segment(2, rows_max=2)
    first = SegmentRow(segment, segment.claim(digest(0), 0, OLD_MS), 0, "1")
    other = SegmentRow(segment, segment.claim(digest(0), 1, OLD_MS), 1, "1")
    segment.claim(digest(1), 0, OLD_MS)
    first.publish(500, 500, OLD_MS)
    assert segment.claim(digest(2), 0, 2 * OLD_MS) == FULL
    first.release()
    assert segment.claim(digest(2), 0, 2 * OLD_MS) == FULL, "the other worker uses it"
    other.release()
    assert segment.claim(digest(2), 0, OLD_MS + 12 * WINDOW_MS) == FULL, "its usage counts still"
    assert segment.claim(digest(2), 0, OLD_MS + 13 * WINDOW_MS) == 0
    assert not first.is_held()
    assert SegmentRow(segment, 0, 0, "1").used() == [0] * 10
    first.release()
    assert segment.claim(digest(2), 0, OLD_MS + 13 * WINDOW_MS) == TAKEN, "who lost a row does not give it up for its next group"


def test_a_row_that_was_released_keeps_its_totals() -> None:
    """A group that claims its row again finds the totals in it."""
    segment = new_segment(2, rows_max=2)
    row = SegmentRow(segment, segment.claim(digest(0), 0, OLD_MS), 0, "1")
    row.publish(500, 500, OLD_MS)
    row.release()
    assert SegmentRow(segment, segment.claim(digest(0), 0, OLD_MS), 0, "1").used() == [500] + [0] * 9


def test_sums_are_kept_by_slots() -> None:
    """A row keeps one sum per slot of time, newest first, and a reused slot holds only new values."""
    segment = new_segment(2)
    row = SegmentRow(segment, segment.claim(digest(0), 0, OLD_MS), 0, "1")
    for total, time_ms in enumerate((60_000, 60_999, 61_000, 71_500, 72_000), 1):
        row.publish(total, 1, time_ms)
    assert list(row.sums(0)) == [(72_000, 1), (71_000, 1), (61_000, 1)]
    assert list(row.sums(1)) == []


def test_a_dead_workers_rows_are_free_when_its_successor_begins() -> None:
    """The rows of a worker that died are released when its successor starts."""
    segment = new_segment(2, rows_max=1)
    segment.enter(0, 0)
    segment.claim(digest(0), 0, OLD_MS)
    assert segment.claim(digest(1), 1, 2 * OLD_MS) == FULL
    segment.enter(0, 0)
    assert segment.claim(digest(1), 1, 2 * OLD_MS) == 0


def test_a_row_whose_writer_died_in_the_middle_is_made_anew() -> None:
    """A row whose writer died while claiming it is claimed again, and rows behind it are still found."""
    segment = new_segment(2, rows_max=4)
    first = segment.claim(digest(0), 0, OLD_MS)
    behind = segment.claim(digest(4), 0, OLD_MS)
    segment.words[segment.generation_at(first)] += 1
    assert segment.claim(digest(4), 1, OLD_MS) == behind
    assert segment.claim(digest(0), 1, OLD_MS) == first
    assert segment.words[segment.generation_at(first)] == 3


def test_while_another_process_changes_rows_a_group_counts_alone_and_catches_up() -> None:
    """While another process holds the lock a group records without a row, and publishes that once it has one."""
    segment = new_segment(2)
    process, pipe = child(hold_lock, segment)
    assert pipe.recv() == "locked"
    first, second = (SharedWorker(segment, worker, BOUND, 0) for worker in (0, 1))
    assert segment.claim(digest(0), 0, 0) == LOCKED
    assert first.record(6_000, 0) == 0
    assert second.record(6_000, 5) == 0
    process.kill()
    process.join()
    assert first.record(0, 15) == 0
    assert second.record(0, 20) == 1_985
    assert first.record(0, 30) == 1_970
    assert first.known == second.known == 12_000


def test_without_a_row_a_group_counts_alone_and_asks_again() -> None:
    """A group without a row asks for one each second and publishes, once it has one, what is still in its window."""
    segment = new_segment(2, rows_max=1)
    segment.claim(digest(0), 1, 0)
    alone, refused = SharedWorker(segment, 0, BOUND, 0), Mock()
    alone.usage.on_row_refused = refused
    for now_ms in range(0, 50_000, 100):
        assert alone.record(90, now_ms) == 0
    assert refused.call_count == 50
    segment.release(0, 1)
    alone.record(90, 50_000)
    other = SharedWorker(segment, 1, BOUND, 50_010)
    assert other.record(90, 50_010) == 0
    assert 9_000 <= other.remote[0] <= 10_900
    assert other.record(2_000, 50_020) > 0


def test_two_processes_count_each_unit_once() -> None:
    """Two processes that record 100,000 times each and read each other's rows know the same total at the end."""
    segment = new_segment(2)
    children = [child(record_many, segment, worker, RECORDS) for worker in range(2)]
    for _, pipe in children:
        assert pipe.recv() == "recorded"
    for _, pipe in children:
        pipe.send("pull")
    known = [pipe.recv() for _, pipe in children]
    for process, _ in children:
        process.join()
    each = sum(1 + number % 7 for number in range(RECORDS))
    assert known == [2.0 * each] * 2
