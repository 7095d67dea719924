"""Recommended rates of controller mutations: the rate that a bucket needs for its requests, and the round trip through the replay."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from metering_format.event_kinds import ASKED, CHARGED, OWED, REFUSED, SETTLED
from pipeline.quotas.file import read_quota_file
from pipeline.recommend.buckets import lowest_rates, made_by, requests_of
from pipeline.recommend.work import JOB, demands_of, plan_demand
from pipeline.tasks import run_local
from pipeline.whatif.buckets import Steps
from quota.groups.mutation_group import MutationGroup
from sluice_cli.meter import meter
from tests.pipeline.recommend.test_recommend import accepted
from tests.support.frames.topic_frames import create
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.topic_model import TopicModel
from tests.support.memory.topic_talk import Talk
from tests.support.metering.metering_buckets import START_MS, Buckets, write_buckets
from tests.support.metering.metering_topics import write_topics

AMPLE = 1e6
SPAN_MS = 11_000
WAYS = {CHARGED: "strict", REFUSED: "strict", OWED: "permissive", SETTLED: "settled"}

Reported = tuple[int, int, int]
"""Milliseconds after the previous step, kind, mutations."""


def steps_of(reported: list[Reported], *, waits: int = 0, applied: int = 0) -> Steps:
    """Return steps of one bucket; refused ones have the wait `waits`, of which `applied` was applied."""
    later_ms, kind, value = (np.array(column, np.int64) for column in zip(*reported, strict=True))
    none = np.zeros(len(reported), np.int64)
    throttle_ms, applied_ms = (np.where(kind == REFUSED, its, 0) for its in (waits, applied))
    floats = np.zeros(len(reported))
    return Steps(none, START_MS + np.cumsum(later_ms), kind, value, throttle_ms, applied_ms, none, none, floats, floats)


def rates(reported: list[Reported], end_after_ms: int = 0) -> tuple[list[float], float]:
    """Return the rate that each step needs, and the rate needed at the end of the run."""
    steps = steps_of(reported)
    needed, at_end = lowest_rates(steps, made_by(steps), SPAN_MS, int(steps.ts_ms[-1]) + end_after_ms)
    return needed.tolist(), at_end


def play(reported: list[Reported], bound: float) -> tuple[list[bool], float]:
    """The reference loop: return which steps a bucket of `quota`, full at first, makes wait, and its tokens at the end."""
    now_ms = START_MS
    bucket = MutationGroup({}, bound, last_update_ms=START_MS - 2 * SPAN_MS)
    waited = []
    for later_ms, kind, permits in reported:
        now_ms += later_ms
        if kind == OWED:
            waited.append(bucket.record_permissive(permits, now_ms) > 0)
        elif kind == CHARGED:
            waited.append(bucket.is_exhausted(now_ms))
            bucket.record(permits, now_ms)
        else:
            bucket.record_unchecked(permits, now_ms)
            waited.append(False)
    return waited, bucket.tokens(now_ms)


@pytest.mark.parametrize(
    ("reported", "needed", "at_end"),
    [
        pytest.param([(0, CHARGED, 300)], [0.0], 300 / 11, id="one-topic-passes-whatever-its-size-and-is-owed-at-the-end"),
        pytest.param([(0, CHARGED, 66), (0, CHARGED, 66)], [0.0, 6.0], 12.0, id="a-burst-counts-by-the-seconds-that-the-bucket-holds"),
        pytest.param([(0, OWED, 66), (9_000, OWED, 74)], [6.0, 7.0], 7.0, id="what-cannot-be-refused-is-judged-by-itself"),
        pytest.param(
            [(0, CHARGED, 44), (11_000, CHARGED, 44), (11_000, CHARGED, 1)], [0.0, 2.0, 88 / 33], 89 / 33, id="debt-is-paid-by-time"
        ),
        pytest.param([(0, CHARGED, 9), (10**9, CHARGED, 9), (0, CHARGED, 9)], [0.0, 9 / 1_000_011, 9 / 11], 18 / 11, id="old-debt-is-none"),
        pytest.param([(0, CHARGED, 66), (10, SETTLED, -66), (0, CHARGED, 5)], [0.0, 0.0, 0.0], 5 / 11, id="given-back-is-not-owed"),
        pytest.param([(0, CHARGED, 66), (0, ASKED, 50), (0, CHARGED, 0)], [0.0, 0.0, 6.0], 6.0, id="refused-by-another-bucket-is-no-ask"),
        pytest.param([(0, CHARGED, 66), (0, REFUSED, 50), (0, REFUSED, 50)], [0.0, 6.0, 6.0], 6.0, id="refused-is-asked-and-not-taken"),
    ],
)
def test_lowest_rates(reported: list[Reported], needed: list[float], at_end: float) -> None:
    """The needed rate is the maximum over all earlier times of taken / (span + time), and a step that can be refused is judged before
    it is taken.
    """
    assert rates(reported) == (pytest.approx(needed), pytest.approx(at_end))


def test_a_debt_at_the_end_needs_a_lower_rate_in_a_longer_run() -> None:
    """The rate needed at the end is lower when the run lasts longer."""
    assert rates([(0, CHARGED, 300)], end_after_ms=289_000)[1] == 1.0


asked = st.lists(
    st.tuples(
        st.sampled_from([0, 0, 1, 7, 400, 1_000, 11_000, 60_000, 10**7]),
        st.sampled_from([CHARGED, CHARGED, OWED, SETTLED]),
        st.integers(1, 1_000),
    ),
    min_size=1,
    max_size=40,
).map(lambda reported: [(later_ms, kind, -permits if kind == SETTLED else permits) for later_ms, kind, permits in reported])


@given(asked)
def test_no_lower_rate_would_do(reported: list[Reported]) -> None:
    """At the highest of these rates no client waits and no debt is left at the end; at a thousandth less, a client waits or a debt is
    left.
    """
    needed, at_end = rates(reported)
    highest = max(*needed, at_end)
    waited, left = play(reported, highest * (1 + 1e-9) + 1e-12)
    assert not any(waited)
    assert left >= 0.0
    if highest > 0.0:
        waited, left = play(reported, highest * 0.999)
        assert any(waited) or left < 0.0


@given(asked.map(lambda reported: [(later_ms, OWED, abs(permits)) for later_ms, _, permits in reported]), st.floats(0.01, 200))
def test_who_waits_is_who_needs_more(reported: list[Reported], bound: float) -> None:
    """When every step is charged, exactly the steps wait whose needed rate is above the bound."""
    needed, _ = rates(reported)
    waited, _ = play(reported, bound)
    waits_ms = [now for now, need in zip(waited, needed, strict=True) if not math.isclose(need, bound, rel_tol=1e-3)]
    assert waits_ms == [need > bound for need in needed if not math.isclose(need, bound, rel_tol=1e-3)]


@given(asked.map(lambda reported: [(later_ms, CHARGED, abs(permits)) for later_ms, _, permits in reported]), st.floats(0.01, 200))
def test_no_more_wait_than_need_more(reported: list[Reported], bound: float) -> None:
    """When steps can be refused, only steps wait whose needed rate is above the bound."""
    needed, _ = rates(reported)
    waited, _ = play(reported, bound)
    assert all(need > bound * (1 - 1e-9) for need, is_refused in zip(needed, waited, strict=True) if is_refused)


@given(asked)
def test_the_hull_gives_the_maximum_over_all_earlier_steps(reported: list[Reported]) -> None:
    """The needed rate of each step equals the maximum over all earlier steps, computed one by one."""
    needed, _ = rates(reported)
    times_ms, taken = np.cumsum([later_ms for later_ms, _, _ in reported]), [permits for _, _, permits in reported]
    for at, (_, kind, _) in enumerate(reported):
        end = {CHARGED: at, OWED: at + 1}.get(kind)
        tried = (
            [0.0]
            if end is None
            else [sum(taken[since:end]) * 1_000 / (SPAN_MS + times_ms[at] - times_ms[since]) for since in range(at + 1)]
        )
        assert needed[at] == pytest.approx(max(tried))


@pytest.mark.parametrize(
    ("waits", "applied", "made", "highest", "held_up"),
    [
        pytest.param(500, 500, [66, 0], 6.0, 1, id="refused-its-client-asks-again"),
        pytest.param(500, 0, [66, 50], 116 / 11, 0, id="only-observed-it-was-made"),
        pytest.param(0, 0, [66, 0], 6.0, 1, id="refused-though-the-wait-is-less-than-a-millisecond"),
    ],
)
def test_what_is_refused_counts_when_it_is_made(waits: int, applied: int, made: list[int], highest: float, held_up: int) -> None:
    """A refused request counts once: when it passes, or at once if the wait was not applied."""
    steps = steps_of([(0, CHARGED, 66), (0, REFUSED, 50)], waits=waits, applied=applied)
    assert made_by(steps).tolist() == made
    asks = requests_of(steps, SPAN_MS, START_MS)
    assert asks is not None
    assert (asks.units.tolist(), asks.rates.max(), asks.throttled_seconds) == ([sum(made)], pytest.approx(highest), held_up)


def test_seconds_are_those_of_asks() -> None:
    """A refund a second later reduces the second of its request, and a refund alone makes no request."""
    asks = requests_of(steps_of([(0, CHARGED, 30), (999, CHARGED, 10), (2, SETTLED, -8), (5_000, CHARGED, 4)]), SPAN_MS, START_MS)
    assert asks is not None
    assert ((asks.seconds - START_MS // 1_000).tolist(), asks.units.tolist()) == ([0, 6], [32, 4])
    assert len(asks.rates) == 3
    assert requests_of(steps_of([(0, SETTLED, -8)]), SPAN_MS, START_MS) is None


def batch(reported: list[Reported], ref: int = 0) -> Callable[[Buckets], None]:
    """Return one file set of these steps; refused steps are recorded as refused."""

    def played(buckets: Buckets) -> None:
        for later_ms, kind, permits in reported:
            buckets.now_ms += later_ms
            buckets.step(ref, permits, WAYS[kind])

    return played


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


def proposals(*arguments: object) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return what `recommend` proposes, and what it expects of it."""
    reported = invoke("recommend", *arguments, "--format", "json")
    assert reported.exit_code == 0, reported.output
    summary = json.loads(reported.stdout)
    [scenario] = summary["expected"]["scenarios"]
    return summary["proposals"], scenario["groups"]


BURST = [(60_000, CHARGED, 10), *[(0, CHARGED, 10)] * 21]
"""220 mutations at once; the last topic passes if the bucket is not below zero after 210: 19.1 per second."""


def test_a_burst_is_not_its_peak_second(tmp_path: Path) -> None:
    """A burst of 220 mutations in one second of every minute needs 19.1 per second: then no client waits, and at less a client does."""
    source = write_buckets(tmp_path / "in", Buckets([AMPLE]), [batch(BURST * 4), batch(BURST * 3), batch([*BURST, (10_000, CHARGED, 1)])])
    written = tmp_path / "quotas.toml"
    [proposal], [expected] = proposals("--in", source, "--percentile", 100, "--headroom", 1, "--out", written)
    assert (proposal["max"], proposal["base"], proposal["bound"]) == (220.0, pytest.approx(210 / 11), 20.0)
    assert proposal["key"] == "controller_mutation_rate"
    assert (proposal["bound_today"], expected["bound"], expected["throttled"], expected["node"]) == (AMPLE, 20.0, 0, "cluster")
    assert accepted(written)
    assert read_quota_file(written).bound("ControllerMutation", "", "c0") == 20.0
    assert "-> 0 ms, 1 group" in invoke("whatif", "--in", source, "--quotas", written).stdout
    written.write_text(written.read_text().replace("20.0", "15.0"))
    assert "-> 0 ms" not in invoke("whatif", "--in", source, "--quotas", written).stdout


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_with_the_maximum_as_base_no_client_waits(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """For any decisions in any file sets, the replay under the quotas proposed from the maximum has no wait."""
    reported = data.draw(st.lists(asked, min_size=1, max_size=3))
    source = write_buckets(tmp_path_factory.mktemp("any"), Buckets([AMPLE]), [batch([(0, CHARGED, 1), *steps]) for steps in reported])
    [proposal], [expected] = proposals("--in", source, "--percentile", 100, "--headroom", 1)
    assert proposal["throttled_seconds"] == 0
    assert (expected["bound"], expected["throttled"]) == (proposal["bound"], 0)


def test_headroom_and_percentile_are_heeded(tmp_path: Path) -> None:
    """Headroom multiplies the proposal; a lower percentile lowers it, and at most the remaining share of seconds has a wait."""
    source = write_buckets(tmp_path, Buckets([AMPLE]), [batch([(7_000, OWED, 5 * number) for number in range(1, 101)])])
    [most], _ = proposals("--in", source, "--percentile", 100, "--headroom", 1)
    [double], _ = proposals("--in", source, "--percentile", 100, "--headroom", 2)
    [some], [expected] = proposals("--in", source, "--percentile", 80, "--headroom", 1)
    assert double["base"] == most["base"]
    assert double["bound"] == pytest.approx(2 * most["bound"], rel=0.1)
    assert some["bound"] < most["bound"]
    assert 10 <= expected["throttled"] <= 20


def test_who_was_refused_is_reported_with_low_confidence(tmp_path: Path) -> None:
    """A client with refused requests gets low confidence, and a note states what the replay cannot know."""
    reported = invoke("recommend", "--in", write_topics(tmp_path / "in", minutes=15))
    by_group = {line.split("  ")[0]: line for line in reported.stdout.splitlines()}
    assert "what was wanted then is not known; a full bucket holds" in by_group["client-id tests"]
    assert "medium" in by_group["client-id old-tool"]
    assert "1,000/s" in by_group["client-id deployer"]
    assert "first topic only" in by_group["note"]
    assert "(client-id tests)" in by_group["note"]


def test_retries_are_not_counted_twice(tmp_path: Path) -> None:
    """However often a refused client retries, its proposal is less than twice its present quota."""
    impatient = [(0, CHARGED, 60), *[(100, REFUSED, 30)] * 60]
    source = write_buckets(tmp_path, Buckets([5.0]), [batch([*impatient[:40], (3_000, CHARGED, 30)])])
    [proposal], _ = proposals("--in", source, "--percentile", 100, "--headroom", 1)
    assert proposal["throttled_seconds"] > 0
    assert proposal["bound"] < 10.0


def test_users_and_client_ids_are_named(tmp_path: Path) -> None:
    """The rate is written for the entity of the bucket, a user, a client-id or both, beside other quotas of the file."""

    def named(tables: dict[str, list[dict[str, Any]]]) -> None:
        for row, user, client_id in zip(tables["dim_group"], ["ann%40home", "bob", ""], ["", "etl", "etl"], strict=True):
            row["tag_user"], row["tag_client_id"] = user, client_id

    batches = [batch(BURST, 0), batch(BURST * 2, 1), batch(BURST, 2)]
    source = write_buckets(tmp_path / "in", Buckets([AMPLE] * 3), batches, named)
    written = tmp_path / "quotas.toml"
    found, _ = proposals("--in", source, "--out", written)
    assert {item["group"] for item in found} == {"user ann@home", "user bob, client-id etl", "client-id etl"}
    assert accepted(written)
    quotas = read_quota_file(written)
    assert quotas.bound("ControllerMutation", "ann%40home", "") > 1.0
    assert quotas.bound("ControllerMutation", "bob", "etl") > 1.0
    assert quotas.bound("ControllerMutation", "", "etl") > 1.0


def test_groups_of_a_callback_are_left_out(tmp_path: Path) -> None:
    """The bucket of a declared group gets no proposal and the output says so; without another group nothing is recommended."""

    def declared(tables: dict[str, list[dict[str, Any]]]) -> None:
        tables["dim_group"][0]["tags"] = "declared-group=saas"

    both = write_buckets(
        tmp_path / "both", Buckets([AMPLE] * 2), [lambda buckets: (batch(BURST, 0)(buckets), batch(BURST, 1)(buckets))], declared
    )
    reported = invoke("recommend", "--in", both)
    assert "declared-group=saas (ControllerMutation): a quota file has no name for it" in reported.stdout
    alone = write_buckets(tmp_path / "alone", Buckets([AMPLE]), [batch(BURST)], declared)
    assert invoke("recommend", "--in", alone).exit_code == 3


def test_every_run_begins_with_a_full_bucket(tmp_path: Path) -> None:
    """Requests of two runs are not added up, since a new proxy begins with a full bucket, and the seconds of both runs count."""
    source = write_buckets(tmp_path, Buckets([AMPLE]), [batch(BURST)])
    parts = run_local(JOB, plan_demand(source))
    once, twice = demands_of(parts), demands_of([*parts, *parts])
    [one], [two] = once.values(), twice.values()
    assert two.rates().max() == one.rates().max() == pytest.approx(220 / 11)
    assert two.by_second()[1].sum() == 2 * one.by_second()[1].sum()


@pytest.mark.parametrize("level", ["packed", "trace"])
def test_what_the_proxy_metered_goes_round(tmp_path: Path, level: str) -> None:
    """Bursts of 240 mutations through the proxy need a rate of 232 in 11 s, and the proxy accepts the proposed quota, under which no
    request waits.
    """
    with MeteredFixture(tmp_path / "in", level=level) as proxy:
        proxy.set_quota(mutation=AMPLE)
        talk = Talk(proxy, TopicModel())
        for number in range(4):
            proxy.wait(100_000)
            talk.says(create(number, {f"t{number}-{at}": 8 for at in range(30)}, client_id="etl"))
        proxy.wait(60_000)
        talk.says(create(9, {"last": 1}, client_id="etl"))
        assert proxy.written().kinds() == {}
    written = tmp_path / "quotas.toml"
    found, expected = proposals("--in", tmp_path / "in", "--percentile", 100, "--headroom", 1, "--out", written)
    [proposal] = [item for item in found if item["quota_type"] == "ControllerMutation"]
    assert (proposal["group"], proposal["max"], proposal["base"]) == ("client-id etl", 240.0, pytest.approx(232 / 11))
    assert accepted(written)
    assert [change["throttled"] for change in expected if change["quota_type"] == "ControllerMutation"] == [0]
    assert read_quota_file(written).bound("ControllerMutation", "", "etl") == proposal["bound"] == 22.0


def test_who_has_no_quota_is_not_metered(tmp_path: Path) -> None:
    """A client without a mutation quota has no record and gets no proposal; a quota that is never reached is recorded."""
    with MeteredFixture(tmp_path) as proxy:
        talk = Talk(proxy, TopicModel())
        talk.says(create(1, {"unmetered": 8}, client_id="etl"))
        proxy.set_quota(mutation=AMPLE)
        talk.says(create(2, {"metered": 5}, client_id="etl"))
        assert proxy.written().kinds() == {}
    assert [row["value"] for row in proxy.rows("events") if row["kind"] == CHARGED] == [5]
