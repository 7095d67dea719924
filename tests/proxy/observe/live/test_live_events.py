"""The events of the live page describe the same groups, whichever of them a viewer reads."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.observe.live.brokers import LATENCY_SPAN_MS, RecentLatencies
from proxy.observe.live.feed import VIEWERS_MAX, LiveFeed, TooManyViewersError
from proxy.observe.live.limits import HISTORY_BYTES_MAX, VIEWER_BYTES_MAX
from proxy.observe.live.table import LiveTable
from proxy.observe.page_source import OneProcess
from proxy.observe.rows.live_rows import LiveGroups, LiveQuery, LiveRow
from proxy.telemetry.latency import SHIFT
from proxy.telemetry.loop_lag import LoopLag
from quota.entity import ClientQuotaEntity, KafkaPrincipal
from tests.support.memory.proxy_state import FakeState, busy_state
from tests.support.memory.worker_states import FakeWorkers
from tests.support.page.live_events import Follower, event_of

ROWS = st.builds(
    LiveRow,
    st.sampled_from(["1", "2"]),
    st.integers(0, 3),
    st.tuples(st.tuples(st.just("client-id"), st.sampled_from("abc\udcff"))),
    st.just({"client-id": "a"}),
    st.sampled_from(["client-id=a", "client-id=\u2028\udcff</script>"]),
    st.sampled_from(["client-id=a", "none"]),
    st.floats(0, allow_nan=False),
    st.floats(allow_nan=True, allow_infinity=True),
    st.booleans(),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)
STEPS = st.lists(
    st.tuples(st.lists(ROWS, max_size=8, unique_by=lambda row: row.place), st.dictionaries(st.sampled_from("ab"), st.integers()))
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_changes_lead_to_everything(steps: list[tuple[list[LiveRow], dict[str, Any]]]) -> None:
    """A viewer that reads every change knows what one knows that reads everything."""
    table, follower = LiveTable(), Follower()
    follower.apply(event_of(table.everything()))
    for rows, head in steps:
        changes = event_of(table.update(LiveGroups(rows, 3), {"a": 0, "b": 0, **head}, {}))
        follower.apply(changes)
        everything, fresh = event_of(table.everything()), Follower()
        fresh.apply(everything)
        assert (follower.groups, follower.head) == (fresh.groups, fresh.head)
        assert changes.data["seq"] == everything.data["seq"]
        assert len(fresh.groups) == len(rows)


async def test_equal_states_are_no_change() -> None:
    """Without a change an event has neither groups nor values."""
    table, groups = LiveTable(), await OneProcess(busy_state()).live_groups(LiveQuery(10, waited_only=False))
    table.update(groups, {"mode": "delay"}, {})
    data = event_of(table.update(groups, {"mode": "delay"}, {})).data
    assert (data["head"], data["added"], data["changed"], data["removed"]) == ({}, [], [], [])


async def test_a_viewer_gets_everything_and_then_changes() -> None:
    """The first event has everything, each later one the changes; a viewer that missed one gets everything again."""
    state = busy_state()
    feed = LiveFeed(OneProcess(state), LoopLag())
    viewer, slow = feed.join(), feed.join()
    assert [event_of(await one.next_event()).name for one in (viewer, slow)] == ["everything"] * 2
    for _ in range(2):
        await feed.work()
        assert event_of(await viewer.next_event()).name == "changes"
    assert event_of(await slow.next_event()).name == "everything"


async def test_nothing_is_made_without_viewers() -> None:
    """Without viewers there is no snapshot, only a point of the history every five seconds."""
    workers = FakeWorkers([busy_state()])
    feed = LiveFeed(workers.pages, LoopLag())
    await feed.work()
    await feed.work()
    assert (workers.asked, workers.sampled) == (0, 1)
    workers.control.time_ms += 5_000
    await feed.work()
    assert (workers.asked, workers.sampled, len(feed.history)) == (0, 2, 1)
    viewer = feed.join()
    await viewer.next_event()
    asked = workers.asked
    viewer.leave()
    await feed.work()
    assert workers.asked == asked


async def test_viewers_share_a_snapshot_and_are_limited() -> None:
    """Sixteen viewers cause as many questions to workers as one, a further one is refused, and the budget counts them."""
    workers = FakeWorkers([busy_state(), busy_state()])
    feed = LiveFeed(workers.pages, LoopLag())
    viewers = [feed.join() for _ in range(VIEWERS_MAX)]
    await asyncio.gather(*(viewer.next_event() for viewer in viewers))
    assert workers.asked == 2  # figures and groups
    with pytest.raises(TooManyViewersError):
        feed.join()
    await feed.work()
    counted = workers.control.counters.live_page_bytes
    assert counted == VIEWERS_MAX * VIEWER_BYTES_MAX + HISTORY_BYTES_MAX // 1_000
    for viewer in viewers:
        viewer.leave()
    assert workers.control.counters.live_page_bytes == HISTORY_BYTES_MAX // 1_000


async def test_workers_are_shown_as_one_process() -> None:
    """A group of several workers is one row, with the sum of its waits; the head has the workers."""
    states = [busy_state(), busy_state()]
    workers, follower = FakeWorkers(states), Follower()
    viewer = LiveFeed(workers.pages, LoopLag()).join()
    follower.apply(event_of(await viewer.next_event()))
    assert [group["throttle_count"] for group in follower.groups.values() if group["quota_type"] == "Produce"] == [2]
    assert [worker["number"] for worker in follower.head["workers"]] == [1, 2]
    assert follower.head["connections"]["closes"] == {"idle": 4}


async def test_brief_reports_do_not_shorten_metrics() -> None:
    """After a snapshot for viewers, the page for Prometheus still has the clients of a worker that ended."""
    workers = FakeWorkers([busy_state(), FakeState()])
    await workers.pages.snapshot()
    await workers.pages.figures()
    workers.drop(1)
    found = await workers.pages.snapshot()
    assert [usage.user for usage in found.usages if usage.produce_bytes] == ["alice"]


async def test_connections_of_a_group_are_counted() -> None:
    """A row has the number of connections that count for its group."""
    state = FakeState()
    state.mutation.update_quota(ClientQuotaEntity(None, "etl"), 4.0)
    bucket = state.mutation.group(KafkaPrincipal("User", "alice"), "etl", state.time_ms)
    bucket.record_permissive(1.0, state.time_ms)
    state.connected = [(KafkaPrincipal("User", "alice"), "etl")] * 3 + [(KafkaPrincipal("User", "bob"), "other")]
    rows = (await OneProcess(state).live_groups(LiveQuery(10, waited_only=False))).rows
    assert [(row.name, row.connections) for row in rows] == [("client-id=etl", 3)]


async def test_only_groups_that_waited_last_where_there_are_more() -> None:
    """Where there are more groups than are asked for, those that waited last are returned, and the others are counted."""
    state = FakeState()
    for number in range(5):
        state.produce.add(client_id=f"c{number}", bound=100.0).throttled_until_ms = number
    source = OneProcess(state)
    groups = await source.live_groups(LiveQuery(2, waited_only=False))
    assert ([row.tags["client-id"] for row in groups.rows], groups.left_out) == (["c4", "c3"], 3)
    assert len((await source.live_groups(LiveQuery(9, waited_only=True))).rows) == 4


async def test_brokers_have_their_throughput_and_whether_they_are_reached() -> None:
    """A broker has the rates of its groups, its latency and the outcome of the last attempt to connect, also without groups."""
    state, follower = busy_state(), Follower()
    state.counters.brokers_reached = {"1": 1, "2": 0}
    for api, nanoseconds in ((0, 1_000_000), (1, 1_000_000), (1, 900_000_000)):
        state.counters.latencies.of(api, known=True, broker="1")[(nanoseconds >> SHIFT).bit_length()] += 1
    viewer = LiveFeed(OneProcess(state), LoopLag()).join()
    follower.apply(event_of(await viewer.next_event()))
    assert follower.head["brokers"] == [
        {"broker": "1", "produce": 5_000.0, "fetch": 0.0, "groups": 2, "waiting": 1, "is_reached": True, "latency_ms": [1.049, 1_074.0]},
        {"broker": "2", "produce": 0.0, "fetch": 0.0, "groups": 0, "waiting": 0, "is_reached": False, "latency_ms": [None, None]},
    ]


def test_latencies_are_those_of_the_last_minutes() -> None:
    """A response counts for one to two minutes, so a broker that gets slow, or fast again, is seen soon."""
    recent, rows = RecentLatencies(), {"1": [0, 0]}
    found = []
    for minute, row in enumerate(([5, 0], [5, 3], [9, 3], [9, 3], [9, 3])):
        rows = {"1": row}
        found.append(recent.of(rows, minute * LATENCY_SPAN_MS)["1"])
    assert found == [[5, 0], [0, 3], [4, 0], [0, 0], [0, 0]]
    assert recent.of({"1": [9, 3], "2": [1, 0]}, 5 * LATENCY_SPAN_MS - 1) == {"1": [0, 0], "2": [1, 0]}


async def test_a_verdict_is_in_the_next_event() -> None:
    """A client that is throttled is waiting in the first event that is made after its verdict."""
    state, follower = busy_state(), Follower()
    group = state.produce.add(client_id="late", bound=100.0)
    feed = LiveFeed(OneProcess(state), LoopLag())
    viewer = feed.join()
    follower.apply(event_of(await viewer.next_event()))
    assert follower.named("client-id=late")["throttled_until_ms"] == 0
    state.time_ms += 1_000
    throttle_ms = group.record(50_000, state.time_ms)
    await feed.work()
    follower.apply(event_of(await viewer.next_event()))
    assert follower.named("client-id=late")["throttled_until_ms"] == state.time_ms + throttle_ms
