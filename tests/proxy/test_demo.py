"""The model, the judgement and the picture of the demo are right."""

import itertools
import re
import tomllib
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest

from proxy.demo.clients.cast import ROLES, Role, quota_file, role_named
from proxy.demo.judgement.judgement import judge, measured
from proxy.demo.judgement.model import predict
from proxy.demo.judgement.proof import DIVERGENCES_MAX, Proof, proof_of
from proxy.demo.judgement.watcher import GroupSeen
from proxy.demo.pace import BACKLOG_MS, Pace
from proxy.demo.picture import Panel, draw
from proxy.demo.proxies import FleetSeen
from proxy.demo.screen import BARS, Row, Screen, judged, spark
from proxy.demo.series import Series
from quota.groups.group import QuotaGroup

SECONDS = 30
SVG = "{http://www.w3.org/2000/svg}"


def series_of(*points: tuple[int, int], start_ms: int = 0) -> Series:
    series = Series(start_ms)
    for time_ms, total in points:
        series.append(time_ms, total)
    return series


def seen(
    bound: float | None, recorded: float, rows: list[dict[str, Any]] | None = None, count: int | None = None, quota_type: str = "Produce"
) -> GroupSeen:
    """Return a group as /quotas reported it once."""
    group = GroupSeen(quota_type)
    verdicts = rows or []
    group.take_in(
        {
            "bound": bound,
            "recorded_total": recorded,
            "observed": 0.0,
            "throttle_count": len(verdicts) if count is None else count,
            "throttled_until_ms": 0,
            "verdicts": verdicts,
        }
    )
    return group


def verdict_row(**changes: float) -> dict[str, Any]:
    """Return a verdict as /quotas reports it: 11 % over the bound in a window of 11 s."""
    return {"time_ms": 1, "amount": 1, "observed": 2_220_000.0, "bound": 2_000_000.0, "window_ms": 11_000, "throttle_ms": 1_210} | changes


def steady(role: Role, rate: float, seconds: int = SECONDS) -> Series:
    """Return the series of a client that passed `rate` bytes per second, recorded each 100 ms."""
    return series_of(*((at * 100, int(rate * at / 10)) for at in range(1, seconds * 10)))


class TestPace:
    def test_a_request_each_interval(self) -> None:
        """Small delays of single requests do not change the interval of the offered load."""
        pace = Pace(10, 1_000)
        for now_ms in (1_000, 1_013, 1_021):
            pace.done(now_ms)
        assert pace.due_ms == 1_030

    def test_who_was_held_gives_up_most_of_what_it_missed(self) -> None:
        """A client that was held for long makes up for only a limited part of the missed load."""
        pace = Pace(10, 0)
        pace.done(5_000)
        assert pace.due_ms == 5_000 - BACKLOG_MS


class TestModel:
    @pytest.mark.parametrize("quota_type", ["Produce", "Fetch"])
    def test_a_schedule_passes_the_bound_and_the_burst(self, quota_type: str) -> None:
        """Under a schedule the burst passes in the first seconds, and after it the bound in each second."""
        passed = predict(quota_type, 1_000_000, 10_000, 5, 12, burst_ms=1_000)
        assert sum(passed[:2]) == 3_000_000
        assert passed[2:] == [1_000_000] * 10

    def test_a_schedule_of_request_time_passes_the_bound_and_the_burst(self) -> None:
        """Under a schedule of 1 % a second requests of 0.1 percent-seconds pass at once for the burst, and then at the bound."""
        passed = predict("Request", 1.0, 0.1, 50, 12, burst_ms=1_000)
        assert sum(passed[:2]) == pytest.approx(3.0)
        assert passed[2:] == pytest.approx([1.0] * 10)

    def test_without_a_quota_everything_passes(self) -> None:
        """Without a quota the model passes the offered load second by second."""
        assert predict("Produce", None, 1_000, 10, 3) == [100_000] * 3

    @pytest.mark.parametrize("quota_type", ["Produce", "Fetch"])
    def test_ten_seconds_of_quota_pass_at_once(self, quota_type: str) -> None:
        """Twice the quota passes for five seconds, and then nearly nothing until the first second leaves the window."""
        passed = predict(quota_type, 1_000_000, 10_000, 5, 12)
        assert passed[:5] == [2_000_000] * 5
        assert sum(passed[6:11]) < 100_000
        assert passed[11] > 900_000

    def test_a_produce_over_the_quota_passes_and_a_fetch_does_not(self) -> None:
        """Over the quota some produced bytes still pass in the model, and no fetched bytes."""
        produced, fetched = (predict(kind, 1_000_000, 10_000, 5, 11) for kind in ("Produce", "Fetch"))
        assert sum(produced[7:10]) > 0
        assert sum(fetched[7:10]) == 0

    @pytest.mark.parametrize("role", [role for role in ROLES if role.bound and not role.is_charged_by_sluice], ids=lambda role: role.name)
    def test_the_cast_is_throttled_and_stays_within_the_last_rule(self, role: Role) -> None:
        """Each client of the demo offers more than its quota, and the model keeps its last ten seconds below 1.15 x the quota."""
        assert role.bound is not None
        passed = predict(role.quota_type, role.bound, role.amount, role.interval_ms, SECONDS)
        assert sum(passed) < 0.9 * role.amount * 1_000 / role.interval_ms * SECONDS
        assert sum(passed[-10:]) / 10 <= 1.15 * role.bound

    @pytest.mark.parametrize("role", [role for role in ROLES if role.bound and not role.is_charged_by_sluice], ids=lambda role: role.name)
    def test_what_the_model_passes_is_good_after_any_time(self, role: Role) -> None:
        """A run of any length whose clients pass what Kafka's arithmetic passes has no fault, also if its end has part of a burst."""
        assert role.bound is not None
        for seconds in range(5, 121):
            passed = predict(role.quota_type, role.bound, role.amount, role.interval_ms, seconds)
            sums = list(itertools.accumulate(passed))
            client = series_of((0, 0), *((at * 1_000 + 999, int(total)) for at, total in enumerate(sums)))
            judgement = judge(role, client, seen(role.bound, sums[-1], quota_type=role.quota_type), seconds)
            assert judgement.faults == (), seconds

    def test_request_time_is_waited_for_a_window_at_most(self) -> None:
        """A request far over the request quota delays the next one by one second."""
        assert predict("Request", 1.0, 100.0, 10, 12) == [100.0] * 12

    @pytest.mark.parametrize("quota_type", ["Produce", "Fetch", "Request"])
    def test_several_connections_share_load_and_quota(self, quota_type: str) -> None:
        """Two connections with half of the load each pass as much as one, up to a request of each, and one connection is the default."""
        one, two = (predict(quota_type, 1_000_000, 10_000, 5, 30, count) for count in (1, 2))
        assert one == predict(quota_type, 1_000_000, 10_000, 5, 30)
        assert sum(two) == pytest.approx(sum(one), rel=0.02)

    def test_connections_that_come_too_early_do_not_count(self) -> None:
        """Ten seconds' worth of connections pass at once, then none until they leave the window, and then as many again."""
        passed = predict("Connection", 10, 1, 50, 22)
        assert passed[:5] == [20.0] * 5
        assert sum(passed[6:11]) == 0
        assert sum(passed[:11]) == pytest.approx(sum(passed[11:]), rel=0.1)


class TestSeries:
    def test_each_byte_belongs_to_one_second(self) -> None:
        """Each byte is counted in the second in which it was recorded."""
        series = series_of((5_000, 1), (5_999, 3), (6_000, 7), (7_500, 15), start_ms=5_000)
        assert series.per_second(3) == [3, 4, 8]
        assert series.total == 15

    def test_the_sum_of_series(self) -> None:
        """The sum of series has the total of all of them at each time, and one series is its own sum."""
        one, other = series_of((10, 1), (30, 4), start_ms=5), series_of((20, 10), (30, 20), start_ms=5)
        total = Series.sum_of([one, other])
        assert [total.total_at(time_ms) for time_ms in (10, 11, 21, 31)] == [0, 1, 11, 24]
        assert (total.start_ms, total.count, total.total) == (5, 4, 24)
        assert Series.sum_of([one]) is one

    def test_the_mean_counts_what_was_before_the_start_as_nothing(self) -> None:
        """The mean over ten seconds counts the time before the start as 0."""
        assert series_of((0, 10), (1_000, 20)).span_mean(5_000) == 2.0


class TestJudgement:
    orders = role_named("orders")
    audit = role_named("audit")

    def test_good(self) -> None:
        """A client whose bytes, last ten seconds and verdicts are as expected is judged good."""
        series = steady(self.orders, 2_000_000)
        judgement = judge(self.orders, series, seen(2_000_000, series.total, [verdict_row()]), SECONDS)
        assert judgement.is_good
        assert (judgement.verdicts, judgement.equal) == (1, 1)
        assert "1 of 1 verdicts equal" in judged(judgement)

    @pytest.mark.parametrize(
        ("rate", "group", "fault"),
        [
            pytest.param(2_800_000, seen(2_000_000, 0), "more passed", id="too-much"),
            pytest.param(2_400_000, seen(2_000_000, 0), "last 10 s", id="the-last-ten-seconds"),
            pytest.param(1_000_000, seen(2_000_000, 85_000_000), "more passed", id="sluice-counted-more-than-the-client"),
            pytest.param(1_000_000, seen(2_000_000, 0, [verdict_row(throttle_ms=1_211)]), "differently", id="a-wrong-verdict"),
            pytest.param(1_000_000, seen(2_000_000, 0, [verdict_row()], count=2), "not seen", id="a-verdict-not-seen"),
            pytest.param(1_000_000, seen(3_000_000, 0), "as its bound", id="another-bound"),
        ],
    )
    def test_bad(self, rate: float, group: GroupSeen, fault: str) -> None:
        """Each way to miss the quota is named as a fault."""
        judgement = judge(self.orders, steady(self.orders, rate), group, SECONDS)
        assert any(fault in found for found in judgement.faults)

    def test_a_verdict_that_ended_before_it_was_read(self) -> None:
        """One of ten verdicts may remain unseen, and the line says so."""
        judgement = judge(self.orders, steady(self.orders, 1_000_000), seen(2_000_000, 0, [verdict_row()] * 9, count=10), SECONDS)
        assert judgement.is_good
        assert "9 of 9 verdicts equal, 1 unseen" in judged(judgement)

    def test_nothing_passed(self) -> None:
        """A client that passed nothing is judged at fault."""
        assert judge(self.audit, Series(), seen(None, 0), SECONDS).faults == ("nothing passed",)

    def test_request_time_is_measured_by_sluice(self) -> None:
        """The passed request time is what the proxy measured."""
        clicks, client = role_named("clicks"), steady(role_named("clicks"), 10)
        group = seen(0.5, 0, [verdict_row(observed=1.0, bound=0.5, throttle_ms=1_000)], quota_type="Request")
        group.series = series_of(*((second * 1_000, second * 0.5) for second in range(1, SECONDS + 1)))
        group.recorded = 15.0
        assert measured(clicks, client, group) is group.series
        judgement = judge(clicks, client, group, SECONDS)
        assert judgement.is_good
        assert (judgement.passed, judgement.equal) == (15.0, 1)
        assert "measured 150 ms" in judged(judgement)

    def test_as_many_connections_as_the_model_lets_in(self) -> None:
        """A fifth fewer connections than the model predicts is a fault, and the predicted number is not."""
        visitors = role_named("visitors")
        predicted = sum(predict("Connection", 10, 1, visitors.interval_ms, SECONDS))
        for share, is_good in ((1.0, True), (0.8, False)):
            client = series_of(*((at * 90, at) for at in range(1, int(predicted * share) + 1)))
            found = judge(visitors, client, seen(10, 0, quota_type="Connection"), SECONDS)
            assert any("model" in fault for fault in found.faults) != is_good, found.faults

    def test_one_quota_at_two_proxies(self) -> None:
        """Of a client at two proxies the sum is judged, and each proxy must pass a part of it."""
        groups = [seen(2_000_000, 20_000_000, [verdict_row()]), seen(2_000_000, 24_000_000, [verdict_row()] * 2)]
        group, series = GroupSeen.sum_of(groups), steady(self.orders, 2_000_000)
        judgement = judge(self.orders, series, group, SECONDS, [44_000_000, 20_000_000])
        assert judgement.is_good
        assert (judgement.passed, judgement.verdicts, judgement.equal) == (64_000_000, 3, 3)
        assert judge(self.orders, series, group, SECONDS, [60_000_000, 25_000_000]).faults == ("more passed than the quota allows",)
        assert judge(self.orders, series, group, SECONDS, [44_000_000, 0]).faults == ("nothing passed at proxy 2",)
        assert GroupSeen.sum_of(groups[:1]) is groups[0]

    def test_without_a_quota_a_wait_is_a_fault(self) -> None:
        """A throttled client without a quota is judged at fault."""
        judgement = judge(self.audit, steady(self.audit, 1_000_000), seen(None, 1, [verdict_row()]), SECONDS)
        assert judgement.faults == ("throttled 1 times without a quota",)


def test_every_verdict_of_a_group_is_recomputed_equal() -> None:
    """Every verdict of a group that /quotas shows is recomputed to the same throttle time."""
    group, known = QuotaGroup({}, 1_000.0), GroupSeen()
    for at in range(400):
        group.record(700, at * 150)
        rows = [verdict._asdict() for verdict in group.verdicts]
        known.take_in(
            {
                "bound": 1_000,
                "recorded_total": group.recorded_total,
                "observed": group.rate(at * 150),
                "throttle_count": group.throttle_count,
                "throttled_until_ms": group.throttled_until_ms,
                "verdicts": rows,
            }
        )
    assert known.equal == len(known.verdicts) == group.throttle_count > 16


def test_the_quota_file_of_the_cast() -> None:
    """The quota file of the demo holds one quota for each client that has one."""
    assert tomllib.loads(quota_file()) == {
        "quota": [
            {"client-id": "orders", "producer_byte_rate": 2_000_000},
            {"client-id": "reports", "consumer_byte_rate": 1_500_000},
            {"client-id": "clicks", "request_percentage": 0.5},
            {"ip": "127.0.0.2", "connection_creation_rate": 10},
        ]
    }


def test_a_spark_never_hides_a_little() -> None:
    """A bar is blank for zero, low for little and full for the peak."""
    assert spark([0, 1, 500, 1_000], 1_000) == " ▁▄█"


def parsed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)  # noqa: S314 - our own text


PANEL = Panel("a<b", "produces & waits", "MB/s", 2.0, "4.0 MB/s", [4.0, 0.0], [4.0, 0.1], [(0.0, 0.0), (2.0, 0.4)], "8 MB", True)


class TestScreen:
    def test_a_row_is_as_wide_as_the_terminal_allows(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        """A row fits into the terminal by fewer bars first and then without the held time and connections."""
        screen = Screen()
        screen.is_terminal = True
        rows = [Row(role, 1.0, 1.0, [1.0] * 30, held_ms=12_300, held_now=16 * (role.name == "visitors")) for role in ROLES]
        for columns, bars, held in ((120, 30, True), (100, 16, True), (85, 1, True), (80, 0, False)):
            monkeypatch.setenv("COLUMNS", str(columns))
            screen.show(rows, 30, 60)
            lines = re.sub(r"\x1b\[[0-9;]*[A-Za-z]|\r", "", capsys.readouterr().out).splitlines()[1 : len(ROLES) + 1]
            assert max(map(len, lines)) <= columns
            assert {sum(line.count(bar) for bar in BARS[1:]) for line in lines} == {bars}
            assert ("held 12.3 s" in lines[0], "16 held" in lines[-1]) == (held, held)

    def test_a_fleet(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The lines of a fleet have the part of each proxy, and whether all hear each other."""
        screen = Screen()
        role = role_named("orders")
        series, group = steady(role, 2_000_000), seen(2_000_000, 0, [verdict_row()])
        screen.verdict(judge(role, series, group, SECONDS, [39_000_000, 21_000_000]))
        screen.fleet(FleetSeen(heard=(2, 2), lags_ms=(8.4, 13.0)))
        screen.fleet(FleetSeen(heard=(2, 1), lags_ms=(8.4,)))
        assert capsys.readouterr().out.splitlines()[1:] == [
            "           of it 39.0 MB at proxy 1, 21.0 MB at proxy 2",
            "  fleet    each proxy hears 2; lag 8 ms, 13 ms  ok",
            "  fleet    each proxy hears 1; lag 8 ms  FAILED",
        ]


class TestPicture:
    def test_the_bars_of_several_proxies_are_stacked(self) -> None:
        """The bar of each proxy begins where the one below ends, the highest ends at the sum, and the legend names each proxy."""
        text = draw([replace(PANEL, parts=[[1.0, 0.0], [2.0, 0.5], [1.0, 0.0]], measured=[4.0, 0.5])], 2, 3)
        paths = [path.get("d", "") for path in parsed(text).iter(f"{SVG}path") if path.get("class", "").startswith("part")]
        first = [[float(y) for y in re.findall(r"[ V](-?[\d.]+)(?=[VHZ])", path.split("Z")[0])] for path in paths]
        assert [bar[1] for bar in first[:2]] == [bar[0] for bar in first[1:]]
        (whole,) = (path.get("d", "") for path in parsed(draw([PANEL], 2)).iter(f"{SVG}path") if "area" in path.get("class", ""))
        assert first[-1][1] == float(whole.split("V")[1].split("H")[0])
        assert all(f">proxy {number}<" in text for number in (1, 2, 3))

    def test_it_is_svg_that_says_what_it_shows(self) -> None:
        """The picture is well-formed SVG with a title and a description of its figures, and names are escaped."""
        root = parsed(draw([PANEL], 2))
        assert root.tag == f"{SVG}svg"
        assert "Sluice" in (root.findtext(f"{SVG}title") or "")
        assert "a<b produces & waits: a quota of 2 MB/s, would like 4.0 MB/s; 8 MB." in (root.findtext(f"{SVG}desc") or "")

    def test_it_stands_alone(self) -> None:
        """The picture refers to no font, script, image or link."""
        text = draw([PANEL], 2).replace('xmlns="http://www.w3.org/2000/svg"', "")
        assert not any(word in text for word in ("http", "url(", "<script", "<image", "href", "@import"))

    def test_a_panel_of_another_unit_has_its_own_scale(self) -> None:
        """A panel of another unit has a scale of its own, and its unit is shown."""
        other = replace(PANEL, unit="conn/s", bound=20.0, measured=[40.0, 0.0], predicted=[40.0, 0.0])
        text = draw([PANEL, other], 2)
        tops = [
            path.get("d", "").split("V")[1].split("H")[0] for path in parsed(text).iter(f"{SVG}path") if "area" in path.get("class", "")
        ]
        assert float(tops[0]) == pytest.approx(float(tops[1]), abs=12)
        assert "20 conn/s" in text

    def test_panels_of_a_unit_share_one_scale(self) -> None:
        """Twice the rate is drawn twice as high in another panel of the same unit."""
        small = replace(PANEL, name="small", measured=[2.0, 2.0], predicted=[2.0, 2.0])
        root = parsed(draw([PANEL, small], 2))
        tops = [path.get("d", "").split("V")[1].split("H")[0] for path in root.iter(f"{SVG}path") if "area" in path.get("class", "")]
        base = 132.0
        assert base - float(tops[0]) == pytest.approx(2 * (base - float(tops[1])), abs=0.2)

    @pytest.mark.parametrize("seconds", [5, 30, 120])
    def test_nothing_to_draw_is_drawn_too(self, seconds: int) -> None:
        """A run in which nothing passed is drawn without an error."""
        empty = replace(PANEL, bound=None, measured=[0.0] * seconds, predicted=[0.0] * seconds, mean=[(0.0, 0.0)])
        assert parsed(draw([empty], seconds)) is not None


def test_divergences_that_the_pipeline_finds_are_shown() -> None:
    """When validation fails the demo shows the first divergences, so that the run need not be repeated to know them."""
    text = "files       2\nverdict     3 divergences (SHARED 3); the first of each group:\n"
    places = [f"  SHARED  proxy-1 run group {number} seq 9: units: expected 1, recorded 2" for number in range(DIVERGENCES_MAX + 1)]
    proof = proof_of(1, text + "\n".join(places), "")
    assert proof.line == "metering 3 divergences (SHARED 3); the first of each group:"
    assert proof.divergences == tuple(places[:DIVERGENCES_MAX])
    assert proof_of(3, "", "sluice: no manifest\n") == Proof("metering sluice: no manifest", is_good=False)
