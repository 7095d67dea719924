"""Addresses that are refused because their logins failed."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.net.accept.failed_logins import MINUTE_MS, FailedLogins

MALLORY, BOB = "192.0.2.1", "192.0.2.2"


def limited(per_minute: int, addresses_max: int = 100) -> FailedLogins:
    failed = FailedLogins(addresses_max)
    failed.max_per_minute = per_minute
    return failed


def test_so_many_at_once_and_so_many_a_minute() -> None:
    """After ten failures an address is refused, with one attempt each six seconds and ten again after a minute."""
    failed = limited(10)
    for _ in range(10):
        assert not failed.refuses(MALLORY, 0)
        failed.note(MALLORY, 0)
    assert failed.refuses(MALLORY, 5_999)
    assert not failed.refuses(BOB, 0)
    assert not failed.refuses(MALLORY, 6_000)
    failed.note(MALLORY, 6_000)
    assert failed.refuses(MALLORY, 11_999)
    assert not failed.refuses(MALLORY, 12_000)
    passed = 0
    while not failed.refuses(MALLORY, 6_000 + MINUTE_MS):
        failed.note(MALLORY, 6_000 + MINUTE_MS)
        passed += 1
    assert passed == 10


def test_without_a_limit_nothing_is_kept() -> None:
    """Without a limit no failure is stored and no client is refused."""
    failed = FailedLogins()
    failed.note(MALLORY, 0)
    assert len(failed) == 0
    failed.max_per_minute = 1
    failed.note(MALLORY, 0)
    assert failed.refuses(MALLORY, 1)
    failed.max_per_minute = None
    assert not failed.refuses(MALLORY, 1)
    failed.expire(1)
    assert len(failed) == 0


def test_addresses_without_end_take_no_more_room() -> None:
    """The table keeps a limited number of addresses and drops the oldest, and a minute clears it."""
    failed = limited(1, addresses_max=3)
    for number in range(10):
        failed.note(f"a{number}", number)
    assert (len(failed), failed.forgotten) == (3, 7)
    assert [failed.refuses(f"a{number}", 10) for number in range(6, 10)] == [False, True, True, True]
    failed.expire(7 + MINUTE_MS)
    assert len(failed) == 2
    failed.expire(9 + MINUTE_MS)
    assert len(failed) == 0


@given(limit=st.integers(1, 50), gaps=st.lists(st.integers(0, 20_000), max_size=200))
def test_no_more_than_the_burst_and_the_rate(limit: int, gaps: list[int]) -> None:
    """Failures of an address never exceed the limit plus the limit per minute."""
    failed, now, failures = limited(limit), 0, 0
    for gap in gaps:
        now += gap
        if not failed.refuses(MALLORY, now):
            failed.note(MALLORY, now)
            failures += 1
    assert failures <= limit + limit * now / MINUTE_MS + 1e-6
