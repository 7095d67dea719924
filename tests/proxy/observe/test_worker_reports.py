"""Reports of workers: merged, they give the page of one process, and no total falls."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from proxy.observe.metrics.api_names import API_NAMES
from proxy.observe.metrics.exposition import SERIES_MAX, MetricsPage
from proxy.observe.page_source import OneProcess, PageSource
from proxy.observe.snapshot import Snapshot
from proxy.observe.workers.counts import MERGE_MODES, counters_of, counts_of, rows_for, sum_of
from proxy.observe.workers.merged_usages import MergedUsages
from proxy.observe.workers.packing import pack, unpack
from proxy.observe.workers.report import GROUPS_REPORTED_MAX, Report, ReportParts
from proxy.telemetry.client_usage import OTHER
from proxy.telemetry.counters import UNKNOWN_KEY, Counters
from proxy.telemetry.latency import APIS_MAX
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import CallbackStatus
from quota.entity import ANONYMOUS, DEFAULT, ClientQuotaEntity
from tests.support.memory.proxy_state import FakeState, busy_state
from tests.support.memory.worker_states import FakeWorkers
from tests.support.quota_calls import record_time

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
NAMES = ("alice", "etl", "", OTHER, "caf\u00e9", "broken-\udcff", "x" * 300)
OWN_OF_PROCESSES = ("process_", "python_", "kafka_sluice_worker_", "kafka_sluice_loop_")
"""Families that are not sums over workers."""

deeds = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(NAMES), st.sampled_from(NAMES), st.integers(1, 10**6), st.sampled_from(sorted(API_NAMES))),
    max_size=25,
)
"""Each entry: worker, user, client-id, amount, API key."""


def do(state: FakeState, user: str, client_id: str, amount: int, api: int) -> None:
    """Record one request of a client in many counters."""
    usage = state.usages.get(user, client_id)
    usage.own_produce_bytes += amount
    usage.own_fetch_bytes += amount // 3
    usage.request_ns += amount
    usage.requests[api] += 1
    usage.throttled("Produce", f"user={user}", amount % 1_000)
    counted = state.counters
    counted.closes["idle"] = counted.closes.get("idle", 0) + 1
    counted.logins["PLAIN", "success"] = counted.logins.get(("PLAIN", "success"), 0) + amount
    counted.connections_open += 1
    counted.metering.decisions += amount
    counted.administration.changes["http"] = amount
    counted.shadow.compared("Produce", amount % 7, amount % 5)
    counted.throttled("Fetch", amount % 60_000)
    counted.latencies.of(api, known=api != UNKNOWN_KEY)[amount.bit_length()] += 1


def use(state: FakeState, client_id: str, amount: int) -> None:
    """Use the groups of a client-id of three quota types."""
    state.produce.add(client_id=client_id, bound=1_000.0 if amount % 2 else 2.0**63).record(amount, state.time_ms)
    record_time(state.request, ANONYMOUS, client_id, amount * 1_000, state.time_ms)
    state.mutation.group(ANONYMOUS, client_id, state.time_ms).record(amount % 50, state.time_ms)


def fresh_state() -> FakeState:
    """Return a state with request and mutation quotas for every client-id."""
    state = FakeState()
    state.threads = 8
    state.request.update_quota(ClientQuotaEntity(None, DEFAULT), 50.0)
    state.mutation.update_quota(ClientQuotaEntity(None, DEFAULT), 2.0)
    return state


def series(snapshot: Snapshot, page: MetricsPage | None = None) -> Series:
    """Return the samples of a scrape by name and labels, each once."""
    text = (page or MetricsPage(LoopLag())).render(snapshot).decode()
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    by_labels = {(one.name, frozenset(one.labels.items())): one.value for one in found}
    assert len(by_labels) == len(found) <= SERIES_MAX
    return by_labels


def scrape(source: PageSource, page: MetricsPage | None = None) -> Series:
    """Return `series` without those that only one process or only workers have."""
    return {
        key: value
        for key, value in series(asyncio.run(source.snapshot()), page).items()
        if not key[0].startswith(OWN_OF_PROCESSES) and ("check", "workers") not in key[1] and value == value
    }


def value(found: Series, name: str, **labels: str) -> float:
    (one,) = [value for (known, shown), value in found.items() if known == name and labels.items() <= dict(shown).items()]
    return one


def test_every_counter_has_a_way_to_be_merged() -> None:
    """Each slot of the counters has exactly one way to be merged."""
    parts = {name: getattr(Counters(), name) for name in Counters.__slots__}
    nested = {name: part for name, part in parts.items() if name in ("administration", "metering", "shadow")}
    expected = {name for name in parts if name not in nested}
    assert MERGE_MODES.keys() == expected | {f"{name}.{slot}" for name, part in nested.items() for slot in type(part).__slots__}


@settings(max_examples=10, deadline=None)
@given(deeds, st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 10**6)), unique_by=lambda one: one[0]))
def test_the_report_of_one_worker_makes_its_own_page(done: list[Any], used: list[tuple[str, int]]) -> None:
    """The page of one worker's report equals that of one process."""
    state = fresh_state()
    for _, *deed in done:
        do(state, *deed)
    for client_id, amount in used:
        use(state, client_id, amount)
    assert scrape(FakeWorkers([state], fresh_state()).pages) == scrape(OneProcess(state))


@settings(max_examples=10, deadline=None)
@given(deeds, st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 10**6)), unique_by=lambda one: one[0]))
def test_reports_of_several_workers_make_the_page_of_all(done: list[Any], used: list[tuple[str, int]]) -> None:
    """The page of several workers' reports equals that of one process that did all their work."""
    whole, workers = fresh_state(), [fresh_state() for _ in range(4)]
    for at, *deed in done:
        do(whole, *deed)
        do(workers[at], *deed)
    whole.counters.administration.changes["http"] = sum(one.counters.administration.changes.get("http", 0) for one in workers)
    for at, (client_id, amount) in enumerate(used):
        use(whole, client_id, amount)
        use(workers[at % 4], client_id, amount)
    found, expected = scrape(FakeWorkers(workers, fresh_state()).pages), scrape(OneProcess(whole))
    traffic = ("kafka_sluice_requests", "kafka_sluice_responses", "kafka_sluice_received", "kafka_quota_timed", "kafka_quota_request_time")
    differ = {key for key in found.keys() | expected.keys() if found.get(key) != pytest.approx(expected.get(key, -1.0))}
    assert [key for key in differ if not key[0].startswith(traffic) and not (key[0].endswith("changes_total") and not done)] == []
    assert value(found, "kafka_sluice_requests_total") == 4 * value(expected, "kafka_sluice_requests_total")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["do", "do", "do", "die", "silent"]), deeds), min_size=2, max_size=8))
def test_no_total_falls_when_workers_die(turns: list[tuple[str, list[Any]]]) -> None:
    """No counter or bucket falls when a worker is replaced or silent."""
    states = [fresh_state() for _ in range(4)]
    workers, page = FakeWorkers(states, fresh_state()), MetricsPage(LoopLag())
    last: Series = {}
    for at, (what, done) in enumerate(turns):
        for number, *deed in done:
            do(states[number], *deed)
        workers.silent = {1 + at % 4} if what == "silent" else set()
        now = scrape(workers.pages, page)
        totals = {key: value for key, value in now.items() if key[0].endswith(("_total", "_bucket", "_sum", "_count"))}
        fallen = {key for key, value in last.items() if "changes" not in key[0] and totals.get(key, 0.0) < value}
        assert fallen == set()
        last = totals
        if what == "die":
            states[at % 4] = fresh_state()
            workers.replace(1 + at % 4, states[at % 4])


def test_what_is_there_now_ends_with_its_worker() -> None:
    """Open connections of a silent worker count as stale, and those of an ended worker do not count."""
    states = [fresh_state() for _ in range(3)]
    for state in states:
        do(state, "alice", "etl", 7, 0)
    workers = FakeWorkers(states)
    assert value(scrape(workers.pages), "kafka_sluice_connections_open") == 3
    workers.silent = {2}
    found = series(asyncio.run(workers.pages.snapshot()))
    assert [value(found, "kafka_sluice_worker_stale", worker=str(number)) for number in (1, 2, 3)] == [0, 1, 0]
    assert value(found, "kafka_sluice_connections_open") == 3
    workers.silent = set()
    workers.replace(2, fresh_state())
    workers.drop(3)
    found = scrape(workers.pages)
    assert value(found, "kafka_sluice_connections_open") == 1
    assert value(found, "kafka_sluice_closes_total", reason="idle") == 3
    assert value(found, "kafka_quota_bytes_total", direction="produce", user="alice") == 21


def test_each_worker_shows_what_it_takes_of_the_machine() -> None:
    """Each worker has series of its CPU, memory and connections, and one that has never answered is only stale."""
    workers = FakeWorkers([busy_state(), busy_state()])
    workers.silent = {2}
    found = series(asyncio.run(workers.pages.snapshot()))
    assert value(found, "kafka_sluice_worker_connections_open", worker="1") == 4
    assert value(found, "kafka_sluice_worker_resident_memory_bytes", worker="1") > 1_000_000
    assert value(found, "kafka_sluice_worker_cpu_seconds_total", worker="1") > 0
    of_silent = {name for name, labels in found if ("worker", "2") in labels}
    assert of_silent == {"kafka_sluice_worker_stale"}
    assert value(found, "kafka_sluice_ready", check="workers") == 1


def test_equal_groups_are_one() -> None:
    """Equal groups of workers are merged: rates are added, and of bucket balances the smallest is shown."""
    states = [fresh_state() for _ in range(3)]
    for at, state in enumerate(states):
        use(state, "etl", 10_001 + 1_000 * at)
    found = scrape(FakeWorkers(states, fresh_state()).pages)
    assert value(found, "kafka_quota_groups") == 3  # one group of each type
    rates = [state.produce.groups()[0].rate(state.time_ms) for state in states]
    assert value(found, "kafka_quota_rate", quota_type="Produce", quota_entity="client-id=etl") == sum(rates)
    balances = [next(iter(state.mutation.groups())).tokens(state.time_ms) for state in states]
    assert value(found, "kafka_quota_mutation_tokens", quota_entity="client-id=etl") == min(balances)


def test_health_of_callbacks_is_added() -> None:
    """Callback counters of all workers are added, and suspension counts only for living workers."""
    states = [fresh_state(), fresh_state()]
    for state in states:
        state.callback_status = CallbackStatus("a:B", 7, "x", calls=100, call_ns_total=10**9, slow_calls=3, suspended=1, suspensions=2)
    workers = FakeWorkers(states)
    scrape(workers.pages)
    workers.replace(1, fresh_state())
    found = scrape(workers.pages)
    names = ("errors_total", "calls_total", "seconds_total", "slow_calls_total", "suspended", "suspensions_total")
    assert [value(found, f"kafka_quota_callback_{name}") for name in names] == [14, 200, 2, 6, 1, 4]


def test_a_report_has_a_bound() -> None:
    """A report has at most `GROUPS_TOLD_MAX` groups, the most urgent ones, and counts the others."""
    state = fresh_state()
    for at in range(GROUPS_REPORTED_MAX + 500):
        state.produce.add(client_id=f"idle-{at}")
        record_time(state.request, ANONYMOUS, f"timed-{at}", 1_000_000, state.time_ms)
    state.produce.add(client_id="victim", bound=10.0).record(10**6, state.time_ms)
    report = ReportParts(state, LoopLag(), 1).report()
    rows = [row for chunk in report.groups for row in unpack(chunk, list[Any])]
    assert len(rows) == GROUPS_REPORTED_MAX
    assert sum(manager.unreported for manager in report.managers) == GROUPS_REPORTED_MAX + 2 * 500 + 1
    found, expected = scrape(FakeWorkers([state], fresh_state()).pages), scrape(OneProcess(state))
    assert value(found, "kafka_quota_rate", quota_entity="client-id=victim") == 10**6 / 10
    for name in ("kafka_quota_groups", "kafka_quota_broker_threads_utilization_ratio"):
        assert value(found, name) == pytest.approx(value(expected, name))


def test_clients_beyond_the_bound_are_counted_together() -> None:
    """Clients beyond the limit share one row, known ones keep theirs, and the sum is complete."""
    states = [FakeState() for _ in range(3)]
    for at, state in enumerate(states):
        for client in range(at, at + 4):
            do(state, "", f"c{client}", 10, 0)
    merged, reports = MergedUsages(usages_max=3), [ReportParts(state, LoopLag(), at).report() for at, state in enumerate(states)]
    *alone, others = merged.of(reports[:1])
    assert [one.client_id for one in alone] == ["c0", "c1", "c2"]
    merged.end(reports[0])
    *alone, others = merged.of(reversed(reports[1:]))
    assert {one.client_id: one.produce_bytes for one in alone} == {"c0": 10, "c1": 20, "c2": 30}
    assert (others.user, others.produce_bytes, sum(others.requests)) == (OTHER, 60, 6)


def test_apis_keep_their_rows() -> None:
    """Workers' APIs share `APIS_MAX` rows, and an API that has one keeps it."""
    parts = []
    for begin in (0, 30):
        counters = Counters()
        for api in range(begin, begin + 30):
            counters.latencies.of(api, known=True)[3] += 1
        parts.append(counts_of(counters))
    apis: dict[int, None] = {}
    for order in ([0], [1, 0], [0, 1]):
        total = sum_of([parts[at] for at in order])
        rows_for(total, apis)
        latencies = counters_of(total, apis).latencies
        assert len(latencies.rows) <= APIS_MAX
        assert set(range(30)) & latencies.rows.keys() == (set(range(30)) if 0 in order else set())
        assert sum(latencies.other) + sum(sum(row) for row in latencies.rows.values()) == 30 * len(order)


@given(st.recursive(st.text(st.characters(codec=None)) | st.integers(-(2**63), 2**64 - 1) | st.binary(), lambda inner: st.lists(inner)))
def test_any_text_survives_the_way(sent: object) -> None:
    """Any value, also invalid Unicode, survives packing and unpacking."""
    assert unpack(pack(sent), Any) == sent


def test_a_report_survives_the_way() -> None:
    """A report with invalid Unicode survives packing and unpacking."""
    state = busy_state()
    state.callback_status = CallbackStatus("a:B", 1, "broken \udcff")
    report = ReportParts(state, LoopLag(), 5).report()
    assert unpack(pack(report), Report) == report
