"""Metering of controller mutations: the validator recomputes each decision exactly."""

import random
from pathlib import Path

import pytest

from proxy.enforcement.mode import Mode
from quota.entity import ClientQuotaEntity, ClientQuotaType
from quota.groups.declared_groups import Conditions, DeclaredGroup
from quota.groups.pattern import Pattern
from tests.support.frames.topic_frames import create, delete
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.topic_model import TopicModel
from tests.support.memory.topic_talk import Talk

CHARGED, REFUSED, OWED, SETTLED, ASKED = 4, 5, 6, 7, 8


def change_topics(proxy: MeteredFixture, seed: int, requests: int = 60, client_ids: tuple[str, ...] = ("etl",)) -> None:
    """Create and delete more topics than the quota allows, by old and new versions."""
    dice = random.Random(seed)
    model = TopicModel()
    for number in range(requests):
        proxy.wait(dice.choice([1, 40, 333, 2_000, 9_000]))
        names = {f"t{number}-{at}": dice.randrange(1, 12) for at in range(3)}
        version = dice.choice([5, 7, 7, 7])
        talk = Talk(proxy, model)
        talk.says(create(number, names, version=version, client_id=dice.choice(client_ids)))
        if client_ids == ("etl",) and number % 7 == 3:
            talk.says(delete(1_000 + number, ["absent", *names]))


@pytest.mark.parametrize("level", ["packed", "trace"])
@pytest.mark.parametrize("mode", list(Mode))
def test_every_step_of_a_bucket_is_judged_exact(tmp_path: Path, mode: Mode, level: str) -> None:
    """In every mode the validator finds all mutation decisions exact, although the bound changes."""
    with MeteredFixture(tmp_path, mode=mode, level=level) as proxy:
        proxy.set_quota(mutation=7.3)
        change_topics(proxy, 1)
        proxy.set_quota(mutation=2.5)
        change_topics(proxy, 2)
        verdict = proxy.written()
    rows = proxy.rows("events")
    assert (verdict.kinds(), verdict.incomplete, verdict.coverage_percent, verdict.unjudged) == ({}, [], 100.0, 0)
    assert {CHARGED, REFUSED, OWED} <= {row["kind"] for row in rows} <= {CHARGED, REFUSED, OWED, SETTLED}
    count = verdict.counts["ControllerMutation"]
    assert count["decisions"] == len(rows) == verdict.decisions
    assert count["units"] == sum(row["value"] for row in rows if row["kind"] != REFUSED)
    assert count["throttled"] > 20
    assert (sum(row["applied_ms"] for row in rows) > 0) == (mode is not Mode.OBSERVE)
    assert {row["bound"] for row in rows} == {7.3, 2.5}


def test_what_fails_is_settled(tmp_path: Path) -> None:
    """A topic that was charged and not created gets its tokens back, and the file has a settled row."""
    with MeteredFixture(tmp_path, mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=10.0)
        model = TopicModel()
        model.topics["old"] = 5
        Talk(proxy, model).says(create(1, {"new": 20, "old": 30}))
        verdict = proxy.written()
    reported = [(row["kind"], row["value"], row["before"], row["observed"]) for row in proxy.rows("events")]
    assert reported == [(CHARGED, 20, 0.0, 90.0), (CHARGED, 30, 90.0, 60.0), (SETTLED, -30, 60.0, 90.0)]
    assert verdict.kinds() == {}


def test_a_quota_that_goes_and_comes_back(tmp_path: Path) -> None:
    """When a quota is removed during a request its row is unlimited, and rows are exact again after the quota returns."""
    with MeteredFixture(tmp_path, mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=10.0)
        talk = Talk(proxy, TopicModel())
        talk.model.topics["old"] = 5
        talk.peer.client.arrive(create(1, {"new": 100, "old": 30}))
        proxy.scope.mutation.update_quota(ClientQuotaEntity(None, "etl"), None)
        proxy.wait(5_000)
        talk.pump()
        proxy.set_quota(mutation=10.0)
        proxy.wait(5_000)
        talk.says(create(2, {"another": 50}))
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.unjudged) == ({}, 0)
    assert [row["observed"] > 1e18 for row in proxy.rows("events")] == [False, False, True, False]


def test_buckets_go_on_in_the_next_file_set(tmp_path: Path) -> None:
    """The validator follows a bucket from one file set to the next."""
    with MeteredFixture(tmp_path, mode=Mode.MUTE) as proxy:
        proxy.set_quota(mutation=5.0)
        change_topics(proxy, 1, 10)
        proxy.meter.flush()
        proxy.writer.rotate()
        change_topics(proxy, 2, 10)
        verdict = proxy.written()
    assert (verdict.kinds(), verdict.incomplete) == ({}, [])
    assert len(verdict.manifests) == 2


@pytest.mark.parametrize("mode", list(Mode))
def test_buckets_of_a_chain_are_judged_each(tmp_path: Path, mode: Mode) -> None:
    """A group and its parent have a row each, and the validator finds both exact."""
    bounds = {ClientQuotaType.CONTROLLER_MUTATION: 4.0}
    with MeteredFixture(tmp_path, mode=mode) as proxy:
        proxy.declare(
            DeclaredGroup("saas", None, {ClientQuotaType.CONTROLLER_MUTATION: 6.0}),
            DeclaredGroup("acme", Conditions(client_ids=(Pattern("acme-*"),)), bounds, "saas"),
            DeclaredGroup("globex", Conditions(client_ids=(Pattern("globex-*"),)), bounds, "saas"),
        )
        change_topics(proxy, 5, 120, ("acme-a", "globex-b"))
        verdict = proxy.written()
    rows = proxy.rows("events")
    assert (verdict.kinds(), verdict.incomplete, verdict.decisions) == ({}, [], len(rows))
    assert {CHARGED, REFUSED, OWED, ASKED} <= {row["kind"] for row in rows}
    assert verdict.groups == 3
