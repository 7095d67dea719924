"""A group reports the samples of its window."""

from hypothesis import given
from hypothesis import strategies as st

from quota.groups.group import QuotaGroup

EVENTS = st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 5_000), st.booleans()), min_size=1, max_size=80)


@given(events=EVENTS, bound=st.sampled_from([100.0, 1e6]))
def test_samples_that_are_alive(events: list[tuple[int, int, bool]], bound: float) -> None:
    """The live samples of a group have the start, last event and sum that follow from its events, oldest first."""
    group = QuotaGroup({}, bound, num_samples=4, window_ms=1_000)
    now_ms, samples = 1_000, list[list[int]]()
    for step_ms, value, checked in events:
        now_ms += step_ms
        (group.record if checked else group.record_unchecked)(value, now_ms)
        if not samples or now_ms - samples[-1][0] >= 1_000:
            samples.append([now_ms, now_ms, 0])
        samples[-1][1:] = [now_ms, samples[-1][2] + value]
    alive = [(start_ms, last_ms, float(total)) for start_ms, last_ms, total in samples if now_ms - last_ms < 4_000]
    assert group.live_samples() == alive
