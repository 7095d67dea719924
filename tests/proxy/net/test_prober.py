"""When brokers that do not answer are probed again."""

from proxy.net.upstream.prober import RETRY_MAX_S, RETRY_MIN_S, SOON_S, next_retry_s


def test_soon_and_then_rarely() -> None:
    """The retry interval stays below a second at first and then grows to at most `RETRY_MAX_S`."""
    retry_s, silent_s, waits = RETRY_MIN_S, 0.0, []
    while silent_s < 120:
        waits.append((silent_s, retry_s))
        silent_s += retry_s
        retry_s = next_retry_s(retry_s, silent_s)
    assert all(wait_s * 1.2 < 1 for at_s, wait_s in waits if at_s < SOON_S)
    assert [wait_s for _, wait_s in waits[:4]] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-1][1] == RETRY_MAX_S == max(wait_s for _, wait_s in waits)
