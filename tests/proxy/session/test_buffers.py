"""The account of buffered bytes evicts connections when the buffers of the process are full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.session.buffers import STEP_BYTES, BufferAccount, Reservation
from tests.support.reserved import reserved_by

LIMIT = 1_000_000
ROOM = 900_000


class BufferedConnection:
    """A connection that releases its buffers when it is evicted."""

    def __init__(self, account: BufferAccount, host: str) -> None:
        self.reservation = account.open(host)
        self.reservation.end = self.end
        self.ended = False

    def keep(self, kept_bytes: int) -> None:
        """Reserve this many bytes; end if the reservation is evicted."""
        self.reservation.keep(kept_bytes)
        if self.reservation.is_evicted and not self.ended:
            self.end()

    def end(self) -> None:
        """Release everything."""
        self.ended = True
        self.reservation.keep(0)


@pytest.mark.parametrize(
    ("kept", "reserved"),
    [
        pytest.param(0, 0, id="nothing"),
        pytest.param(1, 1, id="less-than-a-step-by-the-byte"),
        pytest.param(STEP_BYTES, STEP_BYTES, id="a-step"),
        pytest.param(STEP_BYTES + 1, 2 * STEP_BYTES, id="more-in-whole-steps"),
    ],
)
def test_what_is_kept_is_reserved_in_steps(kept: int, reserved: int) -> None:
    """From one step on, bytes are reserved in multiples of a step, and the whole reservation is released."""
    account = BufferAccount(LIMIT)
    one = account.open("10.0.0.1")
    one.keep(kept)
    assert (account.reserved_bytes, reserved_by(account, "10.0.0.1")) == (reserved, reserved)
    one.keep(0)
    assert (account.reserved_bytes, reserved_by(account, "10.0.0.1")) == (0, 0)


def test_the_largest_of_the_address_that_holds_most_ends_and_not_the_newcomer() -> None:
    """When the buffers are full, the largest connection of the address with the most bytes is evicted."""
    account = BufferAccount(LIMIT)
    honest = BufferedConnection(account, "10.0.0.1")
    honest.keep(300_000)
    crowd = [BufferedConnection(account, "10.0.0.66") for _ in range(4)]
    for size, one in zip((50_000, 120_000, 190_000, 60_000), crowd, strict=True):
        one.keep(size)
    newcomer = BufferedConnection(account, "10.0.0.2")
    newcomer.keep(200_000)
    assert [one.ended for one in crowd] == [False, False, True, False]
    assert not honest.ended
    assert not newcomer.ended
    assert account.reserved_bytes <= ROOM


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    """Addresses of one IPv6 /64 network are counted together, and an IPv4-mapped address is counted as the IPv4 address."""
    account = BufferAccount(LIMIT)
    crowd = [BufferedConnection(account, f"2001:db8::{number:x}") for number in range(1, 9)]
    for one in crowd:
        one.keep(60_000)
    other = BufferedConnection(account, "2001:db8:0:1::1")
    other.keep(7 * STEP_BYTES)
    assert reserved_by(account, "2001:db8::99") < 8 * 60_000
    assert not other.ended
    mapped = account.open("::ffff:10.0.0.1")
    mapped.keep(10)
    assert reserved_by(account, "10.0.0.1") == 10


def test_who_holds_most_itself_is_notified_when_it_looks() -> None:
    """A connection that is itself the largest is marked as evicted instead of being ended from within its own call."""
    account = BufferAccount(LIMIT)
    small, large = BufferedConnection(account, "10.0.0.1"), account.open("10.0.0.66")
    ended: list[Reservation] = []
    large.end = lambda: ended.append(large)
    small.keep(100)
    large.keep(2 * LIMIT)
    assert (large.is_evicted, ended, small.ended) == (True, [], False)
    large.keep(0)
    assert account.reserved_bytes == 100


def test_who_keeps_something_beyond_its_end_still_counts() -> None:
    """Bytes that an evicted connection still keeps stay reserved, and a further connection is evicted when the limit is exceeded again."""
    account = BufferAccount(LIMIT)
    ended = account.open("10.0.0.66")
    ended.keep(500_000)
    ended.is_evicted = True
    ended.keep(400_000)
    assert account.reserved_bytes == -(-400_000 // STEP_BYTES) * STEP_BYTES
    other = BufferedConnection(account, "10.0.0.66")
    other.keep(600_000)
    assert other.ended


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 400_000)), max_size=60))
def test_the_sum_never_stays_above_the_limit(moves: list[tuple[int, int]]) -> None:
    """After each reservation the total is the sum of all reservations and within the limit."""
    account = BufferAccount(LIMIT)
    ones = [BufferedConnection(account, f"10.0.0.{number // 2}") for number in range(6)]
    for number, kept in moves:
        if not ones[number].ended:
            ones[number].keep(kept)
        assert account.reserved_bytes == sum(one.reservation.reserved_bytes for one in ones) <= ROOM
        assert sum(reserved_by(account, f"10.0.0.{number}") for number in range(3)) == account.reserved_bytes
