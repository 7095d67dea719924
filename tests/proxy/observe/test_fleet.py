"""The fleet on /fleet, /readyz and /metrics."""

import json
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.observe.fleet import HEARD_MS, NO_FLEET, FleetReport, SharedConnectionsStatus, fleet_check, fleet_page, heard
from proxy.observe.metrics.exposition import MetricsPage
from proxy.observe.snapshot import Snapshot, take_snapshot
from proxy.telemetry.loop_lag import LoopLag
from tests.support.memory.fleet_reports import JOINED, OWN, SECOND, fleet_report, member
from tests.support.memory.proxy_state import FakeState, busy_state
from tests.support.memory.worker_states import FakeWorkers
from tests.support.processes.changing_port import READER
from tests.support.processes.changing_port import ChangingPort as Port

NOT_REPORTED = FleetReport(None, 0, 2)


def figures(snapshot: Snapshot, *, with_names: bool = True) -> dict[str, float]:
    """Return the samples about the fleet by name, or by name and reason, without the common beginning."""
    page = MetricsPage(LoopLag()).render(snapshot, with_names=with_names).decode()
    found = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    return {
        " ".join([sample.name.removeprefix("kafka_sluice_fleet_"), *sample.labels.values()]): sample.value
        for sample in found
        if sample.name.startswith("kafka_sluice_fleet_")
    }


def shown(report: FleetReport | None) -> dict[str, float]:
    """Return the figures of a proxy with this report."""
    state = FakeState()
    state.fleet_report = report
    return figures(take_snapshot(state))


def test_ages_include_that_of_the_report() -> None:
    """The silence of other members and the age of the last own message grow with the age of the report, the rest stays."""
    now = fleet_report(age_ms=300).now()
    assert now == msgspec.structs.replace(JOINED, echo_age_ms=740, members=[OWN, msgspec.structs.replace(SECOND, silent_ms=900)])


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        pytest.param(fleet_report(), None, id="joined"),
        pytest.param(fleet_report(age_ms=HEARD_MS), None, id="a-late-report"),
        pytest.param(fleet_report(age_ms=HEARD_MS + 1_500), "the hub has not reported for 4 s", id="a-silent-hub"),
        pytest.param(fleet_report(is_cut_off=True), "own messages do not come back", id="no-echo"),
        pytest.param(fleet_report(is_cut_off=True, problem="does not exist"), "does not exist", id="a-bus-with-a-problem"),
        pytest.param(NOT_REPORTED, "the hub has not reported yet", id="no-report"),
    ],
)
def test_who_is_cut_off_has_a_problem(report: FleetReport, problem: str | None) -> None:
    """A member is cut off when its hub says so, is silent, or has not reported yet, and then the problem is named."""
    now = report.now()
    assert (now.is_cut_off, now.problem) == (problem is not None, problem)


def test_silent_members_are_not_heard() -> None:
    """Members count as heard until the time since their last message exceeds 3 s."""
    members = [member("heard", HEARD_MS), member("silent", HEARD_MS + 1)]
    assert [one.member for one in heard(members)] == ["heard"]


@pytest.mark.parametrize(
    ("report", "ok", "detail"),
    [
        (fleet_report(), True, "2 members, lag 72 ms, topic:__sluice_fleet"),
        (fleet_report(members=[OWN], lag_ms=None), True, "1 member, lag not measured yet, topic:__sluice_fleet"),
        (fleet_report(members=[OWN, member("gone", 5_000)]), True, "1 member, lag 72 ms, topic:__sluice_fleet"),
        (fleet_report(is_cut_off=True, problem="does not exist"), False, "cut off: topic:__sluice_fleet: does not exist"),
        (NOT_REPORTED, False, "cut off: the hub has not reported yet"),
    ],
)
def test_the_check_of_the_fleet(report: FleetReport, ok: bool, detail: str) -> None:
    """The check names members, lag and bus of a member that has joined, and the problem of one that is cut off."""
    assert fleet_check(report) == ("fleet", ok, detail, False)


def test_the_page_says_since_when_a_member_is_cut_off() -> None:
    """The page of a member that is cut off has the time at which its last own message came back, if one has."""
    cut_off = fleet_report(is_cut_off=True, echo_age_ms=9_960)
    assert fleet_page(cut_off, 1_700_000_010.0)["cut_off_since_s"] == 1_700_000_000.0
    assert fleet_page(fleet_report(), 1_700_000_010.0)["cut_off_since_s"] is None
    assert fleet_page(fleet_report(is_cut_off=True, echo_age_ms=None), 1_700_000_010.0)["cut_off_since_s"] is None


async def test_the_page_has_the_whole_status(tmp_path: Path) -> None:
    """/fleet has every field of the status, whether each member is heard, and the starts of the hub."""
    async with Port(tmp_path, tokens=False) as port:
        port.state.fleet_report = fleet_report(hub_starts=3, members=[OWN, member("edge-2", 4_000, has_equal_quotas=False)])
        status, page = await port.ask("/fleet")
        assert status == 200
        assert page.keys() == {*JOINED.__struct_fields__, "cut_off_since_s", "hub_starts", "connections"} - {"clock_ms"}
        assert (page["lag_ms"], page["echo_age_ms"], page["hub_starts"]) == (72.5, 480, 3)
        assert page["members"] == [
            {**msgspec.structs.asdict(OWN), "is_heard": True},
            {**msgspec.structs.asdict(member("edge-2", 4_040, has_equal_quotas=False)), "is_heard": False},
        ]


async def test_without_a_fleet_there_is_no_page(tmp_path: Path) -> None:
    """Without a fleet /fleet gets 404 with one sentence, and /readyz has no check of it."""
    async with Port(tmp_path) as port:
        assert await port.ask("/fleet", token=READER) == (404, f"{NO_FLEET}\n")
        assert "fleet" not in [check["name"] for check in (await port.ask("/readyz"))[1]["checks"]]


@pytest.mark.parametrize(
    ("settings", "token", "status"),
    [
        pytest.param({"tokens": False}, None, 200, id="this-machine"),
        pytest.param({"tokens": True}, None, 403, id="no-token"),
        pytest.param({"tokens": True}, READER, 200, id="a-token"),
        pytest.param({"tokens": False, "elsewhere": True}, None, 403, id="another-machine"),
        pytest.param({"tokens": False, "elsewhere": True, "open_quotas": True}, None, 200, id="another-machine-and-all-may"),
        pytest.param({"tokens": True, "elsewhere": True, "open_quotas": True}, None, 403, id="another-machine-without-its-token"),
    ],
)
@pytest.mark.parametrize("report", [fleet_report(), None], ids=["fleet", "no-fleet"])
async def test_who_may_see_the_fleet(
    tmp_path: Path, settings: dict[str, bool], token: str | None, status: int, report: FleetReport | None
) -> None:
    """/fleet has the access rules of /connections, and who may not see it does not learn whether there is a fleet."""
    async with Port(tmp_path, **settings) as port:
        port.state.fleet_report = report
        assert (await port.ask("/connections", token=token))[0] == status
        assert (await port.ask("/fleet", token=token))[0] == (404 if status == 200 and report is None else status)


async def test_a_member_that_is_cut_off_stays_ready(tmp_path: Path) -> None:
    """/readyz shows that a member is cut off, stays ready, and names the problem only to who may see names."""
    async with Port(tmp_path, tokens=False) as port:
        port.state.fleet_report = fleet_report(is_cut_off=True, problem="does not exist")
        status, page = await port.ask("/readyz")
        assert (status, page["ready"]) == (200, True)
        assert page["checks"][-1] == {
            "name": "fleet",
            "ok": False,
            "detail": "cut off: topic:__sluice_fleet: does not exist",
            "required": False,
        }
    async with Port(tmp_path, elsewhere=True) as port:
        port.state.fleet_report = fleet_report(is_cut_off=True, problem="does not exist")
        assert (await port.ask("/readyz"))[1]["checks"][-1] == {"name": "fleet", "ok": False, "detail": "", "required": False}


def test_metrics_of_a_fleet() -> None:
    """/metrics has the members that are heard, those with other quotas, lag, ages in seconds, and messages that were not used."""
    others = [member("edge-2", has_equal_quotas=False), member("edge-3"), member("gone", 9_000, has_equal_quotas=False)]
    report = fleet_report(hub_starts=2, members=[OWN, *others], forged=3, replayed=4, unreadable=5, of_other_fleets=6)
    assert shown(report) == {
        "members": 3,
        "members_with_other_quotas": 1,
        "lag_seconds": 0.0725,
        "echo_age_seconds": 0.48,
        "cut_off": 0,
        "cut_off_seconds_total": 1.5,
        "unused_messages_total forged": 3,
        "unused_messages_total replayed": 4,
        "unused_messages_total unreadable": 5,
        "messages_of_other_fleets_total": 6,
        "hub_starts_total": 2,
        "members_with_other_limits": 0,
    }


def test_a_fleet_that_shares_connections() -> None:
    """Page and metrics have the connections elsewhere, and the number of members with other limits."""
    others = [member("edge-2", shares_connections=True, has_equal_limits=False), member("gone", 9_000, has_equal_limits=False)]
    report = fleet_report(members=[OWN, *others])._replace(connections=SharedConnectionsStatus(7, 90))
    found = shown(report)
    assert (found["members_with_other_limits"], found["connections_elsewhere"], found["connections_recorded_total"]) == (1, 7, 90)
    page = fleet_page(report, 0.0)
    assert page["connections"] == {"open_elsewhere": 7, "recorded_elsewhere": 90}
    assert page["members"][1]["shares_connections"]


def test_metrics_of_a_fleet_that_is_not_joined() -> None:
    """A member whose hub has not reported yet is the only one and cut off, and has no series of values that were not measured."""
    found = shown(NOT_REPORTED)
    assert (found["members"], found["cut_off"], found["hub_starts_total"]) == (1, 1, 2)
    assert found.keys().isdisjoint({"lag_seconds", "echo_age_seconds"})


def test_metrics_without_a_fleet() -> None:
    """Without a fleet /metrics has no family about it."""
    assert shown(None) == {}


async def test_metrics_of_a_fleet_with_workers() -> None:
    """The figures of the fleet are those of the supervisor, with and without names of clients."""
    control = FakeState()
    control.fleet_report = fleet_report()
    snapshot = await FakeWorkers([busy_state(), busy_state()], control).pages.snapshot()
    assert figures(snapshot) == figures(snapshot, with_names=False) == shown(control.fleet_report)


def test_no_metric_names_a_member() -> None:
    """The page of metrics contains no name of a member."""
    state = FakeState()
    state.fleet_report = fleet_report(members=[OWN, member("secret-name", has_equal_quotas=False)])
    assert "secret-name" not in MetricsPage(LoopLag()).render(take_snapshot(state)).decode()
    assert "secret-name" in json.dumps(fleet_page(state.fleet_report, 0.0))
