"""/metrics: its values, its limit of series, and that it changes no sensor."""

import asyncio
import pickle
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.enforcement.groups.child_groups import enforced_bucket
from proxy.enforcement.switches import Switches
from proxy.observe.metrics.clients import ClientFamilies
from proxy.observe.metrics.exposition import SERIES_MAX, MetricsPage
from proxy.observe.metrics.series import LABEL_CHARS_MAX, Fold, Labels, label
from proxy.observe.metrics.shared import SHARED_MS, SharedMetrics
from proxy.observe.page_source import OneProcess
from proxy.observe.snapshot import take_snapshot
from proxy.telemetry.client_usage import OTHER, Usage, UsageTable
from proxy.telemetry.counters import THROTTLE_BUCKETS_MS, UNKNOWN_KEY, Counters
from proxy.telemetry.latency import APIS_MAX, BROKERS_MAX, SHIFT, ApiLatencies, cumulated
from proxy.telemetry.loop_lag import LoopLag
from proxy.telemetry.status import AdmissionStatus, CallbackStatus, IpRate
from quota.controller_mutation import ControllerMutationQuotaManager
from quota.entity import ANONYMOUS, DEFAULT, ClientQuotaEntity, KafkaPrincipal
from tests.support.memory.proxy_state import FakeState, busy_state
from tests.support.quota_calls import record_time


def samples(state: FakeState, page: MetricsPage | None = None) -> list[Sample]:
    """Return the samples of a scrape, read by Prometheus' parser."""
    text = (page or MetricsPage(LoopLag())).render(take_snapshot(state)).decode()
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


def value(found: list[Sample], name: str, **labels: str) -> float:
    (one,) = [sample.value for sample in found if sample.name == name and labels.items() <= sample.labels.items()]
    return one


def test_what_a_client_did_is_shown_under_its_names() -> None:
    """A client's bytes, requests and throttles are shown by user and client-id."""
    found = samples(busy_state())
    who = {"user": "alice", "client_id": "etl"}
    rule = {"quota_type": "Produce", "quota_entity": "client-id=etl"}
    assert value(found, "kafka_quota_bytes_total", direction="produce", **who) == 1_000
    assert value(found, "kafka_quota_bytes_total", direction="fetch", **who) == 2_000
    assert value(found, "kafka_quota_requests_total", api="Fetch", **who) == 6
    assert value(found, "kafka_quota_throttled_requests_total", **rule, **who) == 1
    assert value(found, "kafka_quota_throttle_seconds_total", **rule, **who) == 1.5


def test_requests_of_apis_without_a_name_are_unknown() -> None:
    """Requests of unknown APIs are counted under `api="unknown"`."""
    state = busy_state()
    usage = state.usages.get("alice", "etl")
    usage.requests[UNKNOWN_KEY] += 4
    assert value(samples(state), "kafka_quota_requests_total", api="unknown", user="alice", client_id="etl") == 4


def test_request_time_is_shown_for_clients_and_as_a_share_of_the_threads() -> None:
    """Request time is shown by client, as exempt time, as a share of elapsed time, and of the configured threads."""
    state = busy_state()
    entity = ClientQuotaEntity(None, "etl")
    state.request.update_quota(entity, 1_000.0)
    record_time(state.request, ANONYMOUS, "etl", 5_500_000_000, state.time_ms)
    state.request.record_exempt(3_000_000_000, state.time_ms)
    found = samples(state)
    assert value(found, "kafka_quota_request_seconds_total", user="alice", client_id="etl") == 2.5
    assert value(found, "kafka_quota_exempt_request_seconds_total") == pytest.approx(3.0)
    assert value(found, "kafka_quota_timed_answer_seconds_total") == 10.0
    assert value(found, "kafka_quota_request_time_share_ratio") == 0.25
    assert value(found, "kafka_quota_rate", quota_type="Request") == pytest.approx(55.0)
    share = value(found, "kafka_quota_broker_threads_utilization_ratio", broker="1")
    assert share == pytest.approx((55.0 + 300 / 30) / (11 * 100))  # exempt time is averaged over at least 30 s
    state.threads = None
    assert not [one for one in samples(state) if one.name == "kafka_quota_broker_threads_utilization_ratio"]


def test_groups_that_had_to_be_shared_are_counted_by_type() -> None:
    """Overflowed groups are counted by quota type."""
    state = busy_state()
    state.request.groups_max = 1
    state.request.update_quota(ClientQuotaEntity(None, DEFAULT), 10.0)
    for client_id in ("a", "b", "c"):
        record_time(state.request, ANONYMOUS, client_id, 1, state.time_ms)
    found = samples(state)
    assert value(found, "kafka_quota_groups_overflowed_total", quota_type="Request") == 2
    assert value(found, "kafka_quota_groups_overflowed_total", quota_type="Produce") == 0


def test_the_callbacks_health_is_shown() -> None:
    """A callback's calls, errors, time, slow calls and suspensions are shown."""
    state = busy_state()
    state.callback_status = CallbackStatus("a:B", 7, "x", calls=100, call_ns_total=2_500_000_000, slow_calls=3, suspended=1, suspensions=2)
    found = samples(state)
    names = ("errors_total", "calls_total", "seconds_total", "slow_calls_total", "suspended", "suspensions_total")
    assert [value(found, f"kafka_quota_callback_{name}") for name in names] == [7, 100, 2.5, 3, 1, 2]


def test_a_group_has_limit_rate_and_utilization() -> None:
    """A limited group has limit, rate and utilization, and an unlimited one only its rate."""
    found = samples(busy_state())
    group = {"broker": "1", "quota_type": "Produce", "quota_entity": "client-id=etl"}
    rate = value(found, "kafka_quota_rate", **group)
    assert value(found, "kafka_quota_limit", **group) == 1_000
    assert rate == 5_000
    assert value(found, "kafka_quota_utilization_ratio", **group) == 5
    assert value(found, "kafka_quota_rate", quota_type="Fetch") == 0
    assert not [one for one in found if one.name == "kafka_quota_limit" and one.labels["quota_type"] == "Fetch"]


def test_throttles_have_a_histogram() -> None:
    """Throttle times have a cumulative histogram."""
    counted = Counters()
    for throttle_ms in (1, 10, 11, 60_000):
        counted.throttled("Fetch", throttle_ms)
    state = FakeState()
    state.counters = counted
    found = [one for one in samples(state) if one.name.startswith("kafka_quota_throttle_duration_seconds")]
    buckets = [one.value for one in found if one.name.endswith("_bucket")]
    assert buckets == [2, 3, *[3] * (len(THROTTLE_BUCKETS_MS) - 2), 4]
    assert {one.name.rsplit("_", 1)[1]: one.value for one in found if not one.name.endswith("_bucket")} == {"count": 4, "sum": 60.022}


def test_latencies_have_a_histogram_by_api() -> None:
    """Latencies have a cumulative histogram for each API."""
    state = FakeState()
    row = state.counters.latencies.of(0, known=True)
    for nanoseconds in (0, (1 << SHIFT) - 1, 1 << SHIFT, 5_000_000, 10**9, 10**12):
        row[(nanoseconds >> SHIFT).bit_length()] += 1
    found = {one.labels["le"]: one.value for one in samples(state) if one.labels.get("api") == "Produce"}
    assert [found[repr(edge)] for edge, _ in cumulated(row)[:-1]] == [2, 3, 3, 4, 4, 4, 5, 5, 5]
    assert found["+Inf"] == 6


def test_no_client_can_fill_a_page_with_apis() -> None:
    """At most `APIS_MAX` APIs have a latency histogram of their own, and the others share one."""
    latencies = ApiLatencies()
    rows = [latencies.of(key, known=True) for key in range(90)]
    assert rows[0] is latencies.of(0, known=True) is not rows[1]
    assert len(latencies.rows) == APIS_MAX
    rows[APIS_MAX][0] += 1
    assert latencies.other[0] == 1
    assert all(row is rows[APIS_MAX] for row in rows[APIS_MAX:])
    assert latencies.of(0x7FFF, known=False) is rows[APIS_MAX]
    labels = [str(number) for number in range(BROKERS_MAX + 9)]
    assert len({id(latencies.of(0, known=True, broker=label)) for label in labels}) <= BROKERS_MAX


def test_a_scrape_changes_no_sensor() -> None:
    """A scrape leaves the group's samples unchanged (invariant 8)."""
    state = busy_state()
    (group,) = state.produce.groups()
    state.time_ms += 30_000  # every sample is obsolete, so a measurement would purge it
    before = pickle.dumps([getattr(group, slot) for cls in type(group).__mro__ for slot in getattr(cls, "__slots__", ())])
    for _ in range(3):
        samples(state)
    assert pickle.dumps([getattr(group, slot) for cls in type(group).__mro__ for slot in getattr(cls, "__slots__", ())]) == before


@pytest.mark.parametrize(("clients", "apis"), [(0, 1), (10, 90), (5_000, 3)])
def test_f8_series_are_bounded(clients: int, apis: int) -> None:
    """With any number of client-ids a page has at most `SERIES_MAX` series, and the sums are complete."""
    state = busy_state()
    for n in range(clients):
        usage = state.usages.get(f"user-{n % 7}", f"client-{n}")
        usage.own_produce_bytes = n
        for key in range(apis):
            usage.requests[key] = 1
        state.produce.add(client_id=f"client-{n}", bound=1e9)
    found = samples(state)
    assert len(found) <= SERIES_MAX
    shown = sum(one.value for one in found if one.name == "kafka_quota_bytes_total" and one.labels["direction"] == "produce")
    assert shown == 1_000 + sum(range(clients))
    assert value(found, "kafka_quota_tracked_entities") == clients + 1
    if clients == 5_000:
        assert value(found, "kafka_quota_bytes_total", direction="produce", user=OTHER, client_id=OTHER) > 0
        assert value(found, "kafka_quota_bytes_total", direction="produce", client_id="client-4999") == 4_999
        assert value(found, "kafka_quota_folded_entities_total") > 4_000
        assert value(found, "kafka_quota_groups") == 5_002


@pytest.mark.parametrize("groups", [3, 3_000])
def test_balances_of_mutations_are_shown_and_bounded(groups: int) -> None:
    """Mutation balances are shown for groups with a limit, within the limit of series."""
    state = busy_state()
    state.mutation = ControllerMutationQuotaManager(enforced_bucket, starts_full=True)
    state.mutation.update_quota(ClientQuotaEntity(None, DEFAULT), 2.0)
    for n in range(groups):
        state.mutation.group(ANONYMOUS, f"maker-{n}", state.time_ms).record(10 + n, state.time_ms)
    found = samples(state)
    assert len(found) <= SERIES_MAX
    balances = {one.labels["quota_entity"]: one.value for one in found if one.name == "kafka_quota_mutation_tokens"}
    if groups == 3:
        assert balances == {"client-id=maker-0": 12, "client-id=maker-1": 11, "client-id=maker-2": 10}
    else:
        assert balances["client-id=maker-2999"] == 22 - 3_009


def test_the_busiest_and_the_throttled_are_shown() -> None:
    """A throttled group has a series although there are thousands of idle groups."""
    state = FakeState()
    for n in range(3_000):
        state.produce.add(client_id=f"idle-{n}")
    victim = state.produce.add(client_id="victim", bound=10.0)
    victim.record(1_000_000, state.time_ms)
    state.usages.get("", "small").own_produce_bytes = 1
    found = samples(state)
    assert value(found, "kafka_quota_utilization_ratio", quota_entity="client-id=victim") > 1


def test_the_usage_table_is_bounded() -> None:
    """A full usage table counts new clients together, and known clients separately."""
    table = UsageTable(usages_max=2)
    first = table.get("a", "1")
    table.get("a", "2")
    assert table.get("a", "3") is table.get("b", "4") is table.other
    assert table.get("a", "1") is first
    assert len(table) == 2


def test_other_never_falls_while_clients_come_and_go() -> None:
    """The `__other__` counter never falls while clients get and lose their own series."""
    families, state = ClientFamilies(), FakeState()
    others: list[float] = []
    busiest = ["a", "b", "c", "d"]
    for turn in range(12):
        for at, name in enumerate(busiest):
            state.usages.get("", name).own_produce_bytes += 1_000 * (4 - at) + turn
        busiest = busiest[1:] + busiest[:1]
        bytes_family = [
            sample
            for family in families.families(take_snapshot(state), 155)
            for sample in family.samples
            if sample.name == "kafka_quota_bytes_total"
        ]
        others.append(sum(sample.value for sample in bytes_family if sample.labels["user"] == OTHER))
    assert others == sorted(others)
    assert others[-1] > others[0]


@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 100), st.booleans()), max_size=6), max_size=12))
def test_fold_is_monotone(turns: list[list[tuple[int, int, bool]]]) -> None:
    """No series of `__other__` falls, whichever clients are folded."""
    fold: Fold[int] = Fold(lambda labels: labels)
    totals = dict.fromkeys(range(6), 0)
    last: dict[Labels, int] = {}
    for turn in turns:
        shown: set[int] = set()
        for owner, grown, is_shown in turn:
            totals[owner] += grown
            shown |= {owner} if is_shown else set()
        folded = [owner for owner in totals if owner not in shown]
        now = fold.fold({owner: {("x",): totals[owner]} for owner in shown}, folded, {("x",): sum(totals[owner] for owner in folded)})
        assert now.get(("x",), 0) >= last.get(("x",), 0)
        last = now


@pytest.mark.parametrize("text", ["\x1b[2J", "a" * 129, "\u202ex", OTHER, "\ud800", "a\nb"])
def test_a_hostile_label_is_made_safe_and_stays_unique(text: str) -> None:
    """A hostile label is printable, limited in length, and distinct from other labels."""
    made = label(text)
    assert made.isprintable()
    assert len(made) <= LABEL_CHARS_MAX
    assert made not in {text, OTHER}
    assert made != label(text + "x")


def hostile_ids() -> Iterator[str]:
    yield from ('"', "\\", "\n", "\\n", "a" * 300, "a" * 301, "\x00", "\u2028", "é", "__other__", "\ud83d", "{}", 'x"} 1\nforged 2')


def test_hostile_ids_leave_a_page_that_parses() -> None:
    """Each hostile client-id has one series on a page that parses."""
    state = FakeState()
    for text in hostile_ids():
        state.usages.get(text, text).own_produce_bytes = 5
        state.produce.add(client_id=text)
    found = [one for one in samples(state) if one.name == "kafka_quota_bytes_total" and one.labels["user"] != OTHER]
    assert len(found) == len({tuple(one.labels.items()) for one in found}) == len(list(hostile_ids()))


def test_loop_lag() -> None:
    """The loop lag has its last value and its maximum of the last one to two minutes."""
    lag = LoopLag()
    lag.record(300.0, 1_000)
    lag.record(2.0, 2_000)
    assert (lag.last_ms, lag.max_ms()) == (2.0, 300.0)
    lag.record(5.0, 61_000)
    assert lag.max_ms() == 300.0
    lag.record(4.0, 121_000)
    assert lag.max_ms() == 5.0
    lag.record(1.0, 600_000)
    assert lag.max_ms() == 1.0


def test_usage_counts_by_type_and_rule() -> None:
    """Throttles are counted by quota type and rule."""
    usage = Usage("a", "b")
    usage.throttled("Produce", "user=a", 5)
    usage.throttled("Produce", "user=a", 6)
    usage.throttled("Fetch", "user=a", 7)
    assert usage.throttle_ms == {("Produce", "user=a"): 11, ("Fetch", "user=a"): 7}
    assert usage.throttled_requests == {("Produce", "user=a"): 2, ("Fetch", "user=a"): 1}


NAMES = ("alice", "etl", "tenant-7", "198.51.100.77", "maker")


def named_state() -> FakeState:
    """Return a state with client names in every place that has one."""
    state = busy_state()
    state.ips = [IpRate("198.51.100.77", "1", 20.0, 20, 3)]
    state.admission_status = state.admission_status._replace(ip_series=state.ips)
    state.switch_table = dict(Switches({"all": "observe", "listener:edge": "off", "entity:user=tenant-7": "enforce"}).table)
    state.exempt_principals = ["User:ops"]
    state.mutation.update_quota(ClientQuotaEntity(None, "maker"), 2.0)
    state.mutation.group(ANONYMOUS, "maker", state.time_ms).record(10, state.time_ms)
    state.request.update_quota(ClientQuotaEntity("tenant-7", None), 2.0)
    record_time(state.request, KafkaPrincipal("User", "tenant-7"), "etl", 5_500_000_000, state.time_ms)
    usage = state.usages.get("tenant-7", "maker")
    usage.own_fetch_bytes = 77
    usage.throttled("Request", "user=tenant-7", 250)
    return state


def test_without_names_nothing_is_called_by_what_clients_chose() -> None:
    """A page without names contains no name of a client and no limit or rate of a group."""
    state = named_state()
    page = MetricsPage(LoopLag())
    named = page.render(take_snapshot(state)).decode()
    assert [name for name in NAMES if name not in named] == []
    nameless = page.render(take_snapshot(state), with_names=False).decode()
    assert [name for name in NAMES if name in nameless] == []
    for family in ("kafka_quota_limit", "kafka_quota_rate", "kafka_quota_utilization_ratio", "kafka_quota_mutation_tokens"):
        assert f"{family}{{" in named
        assert f"{family}{{" not in nameless


def test_without_names_the_sums_are_the_same() -> None:
    """The sums of a page without names equal those of a page with names."""
    state, names = named_state(), ("user", "client_id", "quota_entity")

    def sums(*, with_names: bool) -> dict[tuple[object, ...], float]:
        added: dict[tuple[object, ...], float] = defaultdict(float)
        text = MetricsPage(LoopLag()).render(take_snapshot(state), with_names=with_names).decode()
        for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
            if sample.labels.get("client_id") is not None or not {"quota_entity", "ip", "target"} & sample.labels.keys():
                kept = tuple(sorted(label for label in sample.labels.items() if label[0] not in names))
                added[sample.name, kept] += sample.value
        return {
            key: total
            for key, total in added.items()
            if not str(key[0]).startswith(("process_", "python_")) and key[0] != "kafka_quota_groups_without_series" and total == total
        }

    assert sums(with_names=False) == sums(with_names=True)
    found = MetricsPage(LoopLag()).render(take_snapshot(state), with_names=False).decode()
    assert 'kafka_quota_bytes_total{client_id="__other__",direction="fetch",user="__other__"} 2077.0' in found
    assert 'kafka_quota_switch{mode="observe",target="all"} 1.0' in found
    assert "kafka_quota_switches 3.0" in found


class Counted(FakeState):
    """A state that counts how often a page is rendered."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0

    def admission(self) -> AdmissionStatus:
        self.looks += 1
        return super().admission()


async def test_a_flood_of_scrapes_is_rendered_once_a_second() -> None:
    """Requests within a second share one rendered page with names and one without."""
    state = Counted()
    shared = SharedMetrics(OneProcess(state), LoopLag())
    pages = await asyncio.gather(*(shared.get(with_names=bool(at % 2)) for at in range(200)))
    assert (len(set(pages)), state.looks) == (2, 2)
    state.time_ms += SHARED_MS - 1
    assert await shared.get(with_names=True) in pages
    assert state.looks == 2
    state.time_ms += 1
    state.counters.connections_open = 4_321
    assert b"kafka_sluice_connections_open 4321.0" in (await shared.get(with_names=True))[1]
    assert state.looks == 3


def test_switches_are_shown_and_bounded() -> None:
    """At most 100 switches have a series, the broadest first, and their number is shown."""
    state = busy_state()
    table = {"all": "observe", "listener:edge": "off", **{f"entity:user=u{at:03}": "enforce" for at in range(200)}}
    state.switch_table = dict(Switches(table).table)
    found = samples(state)
    assert value(found, "kafka_quota_switch", target="all", mode="observe") == 1
    assert value(found, "kafka_quota_switch", target="listener:edge", mode="off") == 1
    assert value(found, "kafka_quota_switches") == 202
    assert sum(sample.name == "kafka_quota_switch" for sample in found) == 100


def test_bytes_of_the_exempt_are_counted() -> None:
    """Only bytes of a client while it is exempt count as exempt."""
    state = busy_state()
    usage = state.usages.get("ops", "tool")
    usage.own_produce_bytes = 1_000
    usage.count_exempt(True)
    usage.own_fetch_bytes = 500
    assert value(samples(state), "kafka_quota_exempt_bytes_total") == 500
    usage.count_exempt(False)
    usage.own_fetch_bytes = 9_000
    assert value(samples(state), "kafka_quota_exempt_bytes_total") == 500
