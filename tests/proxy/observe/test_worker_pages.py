"""Pages of several workers: their rows in one order, with equal groups merged."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.base.host_port import HostPort
from proxy.enforcement.groups.child_groups import enforced_group
from proxy.observe.admin_http import AdminHttp
from proxy.observe.explain import SHARERS_MAX, NoWorkerError, explain
from proxy.observe.health import ERRORS_PER_MINUTE_MAX
from proxy.observe.page_source import OneProcess, PageSource
from proxy.observe.rows.client_groups import CLIENTS_NAMED_MAX
from proxy.observe.rows.group_rows import Cursor
from proxy.observe.workers.many_workers import HEALTH_SHARED_MS
from proxy.shared_usage.shared_groups import SHARE_MS
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import ConnectionInfo
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from quota.groups.group import VERDICTS_MAX, QuotaGroup
from quota.manager import ClientQuotaManager
from tests.support.memory.proxy_state import FakeState
from tests.support.memory.shared_workers import SharedWorker, new_segment
from tests.support.memory.worker_states import FakeWorkers
from tests.support.processes.changing_port import READER
from tests.support.processes.changing_port import ChangingPort as Port
from tests.support.quota_calls import record

EVE = KafkaPrincipal("User", "eve")
PLACES = st.sets(st.tuples(st.sampled_from(["produce", "fetch"]), st.text("ab\u00e9\udcff", max_size=4)), max_size=30)


def add(state: FakeState, kind: str, client_id: str, amount: int = 50_000) -> QuotaGroup:
    group: QuotaGroup = getattr(state, kind).add(client_id=client_id, bound=1_000.0)
    group.record(amount, state.time_ms)
    return group


async def pages(source: PageSource, limit: int) -> list[Any]:
    """Return the groups of all pages of /quotas."""
    found, after = [], None
    while True:
        page = json.loads(await source.quotas_page(after, limit))
        assert len(page["groups"]) == limit or page["next"] is None
        found += page["groups"]
        if page["next"] is None:
            return found
        after = Cursor.read(page["next"])


@settings(max_examples=30, deadline=None)
@given(PLACES, st.integers(1, 5), st.integers(1, 9), st.randoms(use_true_random=False))
def test_groups_of_all_workers_come_in_pages_as_those_of_one(places: set[tuple[str, str]], count: int, limit: int, chance: Any) -> None:
    """The pages over several workers equal those of one process with all their groups."""
    whole, states = FakeState(), [FakeState() for _ in range(count)]
    for at, (kind, client_id) in enumerate(places):
        add(whole, kind, client_id, at * 7_777)
        add(chance.choice(states), kind, client_id, at * 7_777)
    workers = FakeWorkers(states)
    assert asyncio.run(pages(workers.pages, limit)) == asyncio.run(pages(OneProcess(whole), limit))


@settings(max_examples=30, deadline=None)
@given(st.lists(PLACES, min_size=2, max_size=4), st.integers(1, 9))
def test_a_group_that_several_workers_have_has_one_row(shards: list[set[tuple[str, str]]], limit: int) -> None:
    """A group of several workers has one row with the sum of their totals."""
    states = [FakeState() for _ in shards]
    for at, places in enumerate(shards):
        for kind, client_id in places:
            add(states[at], kind, client_id, 10_000 * (at + 1))
    rows = asyncio.run(pages(FakeWorkers(states).pages, limit))
    found = {(row["quota_type"].lower(), row["tags"]["client-id"]): row["recorded_total"] for row in rows}
    expected = {place: sum(10_000 * (at + 1) for at, places in enumerate(shards) if place in places) for place in set().union(*shards)}
    assert found == expected
    assert len(rows) == len(expected)


async def test_pages_go_on_while_groups_come_and_go_at_workers() -> None:
    """A group that exists throughout is listed once although groups come and go at workers between pages."""
    states = [FakeState() for _ in range(3)]
    for at in range(90):
        add(states[at % 3], "produce", f"stays-{at}")
        add(states[at % 2], "produce", f"goes-{at}")
    workers, shown, after = FakeWorkers(states), [], None
    while True:
        page = json.loads(await workers.pages.quotas_page(after, 25))
        shown += [one["tags"]["client-id"] for one in page["groups"]]
        if page["next"] is None:
            break
        after = Cursor.read(page["next"])
        for state in states:
            groups = state.produce.groups()
            gone = [group for group in groups if not group.tags["client-id"].startswith("stays")][::5]
            groups[:] = [group for group in groups if group not in gone]
            add(state, "produce", f"came-{len(shown)}")
    assert sorted(one for one in shown if one.startswith("stays")) == sorted(f"stays-{at}" for at in range(90))


async def test_the_verdicts_of_a_group_are_the_newest_of_all_workers() -> None:
    """A merged group has the newest verdicts of all workers, summed counts, and the latest end of throttle."""
    states = [FakeState(), FakeState()]
    for at, state in enumerate(states):
        group = state.produce.add(client_id="etl", bound=1_000.0)
        for turn in range(10):
            group.record(30_000 + at, state.time_ms + 10 * turn + 5 * at)
    (row,) = await pages(FakeWorkers(states).pages, 10)
    times = [verdict["time_ms"] for verdict in row["verdicts"]]
    groups = [state.produce.groups()[0] for state in states]
    every = [verdict.time_ms for group in groups for verdict in group.verdicts]
    assert times == sorted(every)[-VERDICTS_MAX:]
    assert row["throttle_count"] == sum(group.throttle_count for group in groups) == 20
    assert row["throttled_until_ms"] == max(group.throttled_until_ms for group in groups)


async def test_what_workers_took_in_from_each_other_counts_once() -> None:
    """With shared usage a merged group's total counts each record once."""
    states, segment = [FakeState(), FakeState()], new_segment(2)
    now_ms = states[0].time_ms
    sharing = [SharedWorker(segment, number, 1_000.0, now_ms) for number in range(2)]
    for state, worker in zip(states, sharing, strict=True):
        state.produce.groups().append(worker.group)
        worker.record(3_000, now_ms)
        worker.publish(now_ms)
    for worker in sharing:
        worker.pull(now_ms + 2 * SHARE_MS)
    (row,) = await pages(FakeWorkers(states).pages, 10)
    assert (row["recorded_total"], row["observed"]) == (6_000.0, sharing[0].group.rate(now_ms)) == (6_000.0, sharing[1].group.rate(now_ms))


async def test_a_page_names_workers_that_gave_no_answer() -> None:
    """A page shows the rows of workers that answer and names those that do not."""
    states = [FakeState(), FakeState()]
    add(states[0], "produce", "a")
    add(states[1], "produce", "b")
    workers = FakeWorkers(states)
    workers.silent = {2}
    page = json.loads(await workers.pages.quotas_page(None, 10))
    assert ([row["tags"]["client-id"] for row in page["groups"]], page["workers_unanswered"]) == (["a"], [2])
    assert json.loads(await workers.pages.connections_page({}, 0, 10))["workers_unanswered"] == [2]
    assert "workers_unanswered" not in json.loads(await OneProcess(states[0]).quotas_page(None, 10))


def infos(count: int) -> Iterator[ConnectionInfo]:
    for number in range(1, count + 1):
        yield ConnectionInfo("10.0.0.1:5", "default", "1", "User:" + "a" * number, "etl-\udcff", 5, 6, 1, ["throttle"], 7, number)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(0, 60), st.integers(1, 9))
def test_connections_of_all_workers_stand_in_the_order_of_their_numbers(count: int, connections: int, limit: int) -> None:
    """Connections of all workers are listed once, in the order of their numbers, each with its worker."""
    whole, states = FakeState(), [FakeState() for _ in range(count)]
    whole.connection_infos = list(infos(connections))
    for state in states:
        state.connection_infos = whole.connection_infos[states.index(state) :: count]
        state.counters.connections_open = len(state.connection_infos)
    whole.counters.connections_open = connections
    workers, after = FakeWorkers(states), 0
    while after is not None:
        page = json.loads(asyncio.run(workers.pages.connections_page({"held": 1}, after, limit)))
        expected = json.loads(asyncio.run(OneProcess(whole).connections_page({"held": 1}, after, limit)))
        assert [row.pop("worker") for row in page["connections"]] == [(row["number"] - 1) % count + 1 for row in page["connections"]]
        assert page.pop("workers_unanswered") == []
        assert page == expected
        after = page["next"]


def limited(client_id: str, *users: str, connections: int = 1) -> FakeState:
    """Return a worker's state in which users with one client-id are connected."""
    state, manager = FakeState(), ClientQuotaManager(ClientQuotaType.PRODUCE, enforced_group)
    manager.update_quota(ClientQuotaEntity(None, client_id), 1_000.0)
    record(manager, EVE, client_id, 50_000, state.time_ms)
    state.produce = manager  # type: ignore[assignment]
    state.connected = [(KafkaPrincipal("User", user), client_id) for user in users for _ in range(connections)]
    return state


async def test_explain_adds_the_sharers_of_all_workers() -> None:
    """/explain adds up the connections of all workers and counts a client once."""
    states = [limited("etl", "bob", "eve"), limited("etl", "eve", "joe", connections=2)]
    page = await explain(FakeWorkers(states).pages, {}, "bob", "etl", None)
    (group,) = page["quotas"][0]["groups"]
    assert (group["observed"], group["throttle_count"], group["throttled_for_ms"]) == (10_000.0, 2, 40_000)
    counted = {one["principal"]: one["connections"] for one in group["shared_by"]["named"]}
    assert (group["shared_by"]["connections"], group["shared_by"]["clients"]) == (6, 3)
    assert counted == {"User:bob": 1, "User:eve": 3, "User:joe": 2}


async def test_explain_of_one_worker_is_that_of_one_process() -> None:
    """/explain over one worker equals that of one process."""
    state = limited("etl", *(f"user-{at}" for at in range(CLIENTS_NAMED_MAX + 5)))
    page = await explain(FakeWorkers([state], state).pages, {}, "bob", "etl", None)
    assert page == await explain(OneProcess(state), {}, "bob", "etl", None)
    shared = page["quotas"][0]["groups"][0]["shared_by"]
    assert (shared["clients"], len(shared["named"])) == (CLIENTS_NAMED_MAX + 5, SHARERS_MAX)


async def test_explain_needs_a_worker() -> None:
    """/explain fails for a client if no worker answers, and works for an address."""
    workers = FakeWorkers([FakeState()])
    workers.silent = {1}
    with pytest.raises(NoWorkerError):
        await explain(workers.pages, {}, "bob", None, None)
    assert (await explain(workers.pages, {}, None, None, "192.0.2.7"))["quotas"][0]["rates"]


async def test_explain_without_a_worker_is_unavailable(tmp_path: Path) -> None:
    """/explain gets 503 if no worker answers."""
    workers = FakeWorkers([FakeState()])
    workers.silent = {1}
    async with Port(tmp_path, workers=workers.pages) as port:
        assert await port.ask("/explain?user=bob", token=READER) == (503, "no worker answers\n")


@pytest.fixture
async def served() -> AsyncIterator[tuple[FakeWorkers, list[FakeState], Any]]:
    """Yield two workers behind an admin port, and a function that requests a path."""
    states = [FakeState(), FakeState()]
    workers = FakeWorkers(states)
    admin = AdminHttp(workers.pages, HostPort("127.0.0.1", 0), lag=LoopLag())
    address = await admin.start()
    async with aiohttp.ClientSession() as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"http://{address}{path}") as response:
                return response.status, await response.text()

        yield workers, states, get
    await admin.stop()


async def test_ready_while_one_worker_serves(served: tuple[FakeWorkers, list[FakeState], Any]) -> None:
    """/readyz is ready while at least one worker answers, and shows how many do."""
    workers, _, get = served
    for silent, status, detail in ((set(), 200, "2 of 2 answer"), ({1}, 200, "1 of 2 answer"), ({1, 2}, 503, "0 of 2 answer")):
        workers.silent = silent
        workers.control.time_ms += HEALTH_SHARED_MS
        found, text = await get("/readyz")
        assert (found, json.loads(text)["checks"][-1]) == (
            status,
            {"name": "workers", "ok": status == 200, "detail": detail, "required": True},
        )


async def test_errors_of_all_workers_make_the_process_unwell(served: tuple[FakeWorkers, list[FakeState], Any]) -> None:
    """Internal errors of all workers count for /healthz, also those of a replaced worker."""
    workers, states, get = served
    assert await get("/healthz") == (200, "ok\n")
    for state in states:
        state.counters.internal_errors = ERRORS_PER_MINUTE_MAX // 2 + 1
    workers.control.time_ms += 1_000
    assert (await get("/healthz"))[0] == 503
    workers.replace(1, FakeState())
    workers.control.time_ms += HEALTH_SHARED_MS
    assert await get("/healthz") == (503, f"{ERRORS_PER_MINUTE_MAX + 2} internal errors within 1 s\n")


async def test_a_flood_of_health_checks_asks_workers_once(served: tuple[FakeWorkers, list[FakeState], Any]) -> None:
    """Concurrent health checks ask the workers once."""
    workers, _, get = served
    await asyncio.gather(*(get(path) for path in ("/healthz", "/readyz") * 20))
    assert workers.asked == 1
    workers.control.time_ms += HEALTH_SHARED_MS
    await get("/readyz")
    assert workers.asked == 2


async def test_every_page_answers_with_workers(served: tuple[FakeWorkers, list[FakeState], Any]) -> None:
    """All pages are served over HTTP with workers."""
    _, states, get = served
    states[0].connection_infos = list(infos(3))
    for path in ("/metrics", "/quotas?limit=3", "/connections?limit=2"):
        assert (await get(path))[0] == 200
    assert [row["worker"] for row in json.loads((await get("/connections"))[1])["connections"]] == [1, 1, 1]
