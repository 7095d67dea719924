"""Controller mutations in the validator: right decisions pass, and every kind of wrong one is found and named."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metering_format.event_kinds import CHARGED, OWED, REFUSED
from pipeline.errors import BadInputError
from pipeline.file_sets import checked_runs
from pipeline.replay.findings import Kind
from pipeline.tasks import run_local
from pipeline.validation.by_file import check_by_file
from pipeline.validation.local import validate
from tests.support.metering.metering_buckets import START_MS, Buckets, counts_of, write_buckets

Rows = list[dict[str, Any]]
Tables = dict[str, Rows]


def played(steps: int = 300, seed: int = 1) -> Callable[[Buckets], None]:
    return lambda buckets: buckets.play(steps, random.Random(seed))


@pytest.mark.parametrize(("num_samples", "window_ms"), [(11, 1_000), (2, 250), (61, 500)])
def test_what_buckets_decide_is_exact(tmp_path: Path, num_samples: int, window_ms: int) -> None:
    """Steps of all kinds, of several buckets over three file sets, are replayed without a difference, whatever the burst."""
    buckets = Buckets([5.0, 0.3, 40 / 3, 1e-9], num_samples=num_samples, window_ms=window_ms)
    verdict = validate(write_buckets(tmp_path, buckets, [played(seed=seed) for seed in range(3)]))
    assert (verdict.kinds(), verdict.incomplete, verdict.decisions, verdict.groups) == ({}, [], 900, 4)
    assert verdict.counts["ControllerMutation"]["throttled"] > 100


def test_a_changed_bound_is_exact(tmp_path: Path) -> None:
    """When a bound changes, within a file set or between two, the tokens stay and the capacity changes."""

    def changing(buckets: Buckets) -> None:
        buckets.play(100, random.Random(4))
        buckets.change(0, 0.7)
        buckets.play(100, random.Random(5))
        buckets.change(1, 1e6)

    verdict = validate(write_buckets(tmp_path, Buckets([5.0, 0.3]), [changing, played(), changing]))
    assert (verdict.kinds(), verdict.decisions) == ({}, 700)


@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 10**7), st.integers(-50, 10**6), st.sampled_from(["strict", "permissive", "settled"])), max_size=30
    ),
    bound=st.floats(1e-9, 1e12),
)
def test_any_steps_of_any_bucket(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, str]], bound: float) -> None:
    """The replay of whole files and the deciding bucket agree to the last bit, including waits of more than 24 days."""

    def asked(buckets: Buckets) -> None:
        buckets.step(0, 1, "strict")
        for after_ms, permits, way in steps:
            buckets.now_ms += after_ms
            buckets.step(0, permits, way)

    assert validate(write_buckets(tmp_path_factory.mktemp("steps"), Buckets([bound]), [asked])).kinds() == {}


def of_kind(tables: Tables, kind: int, **having: int) -> dict[str, Any]:
    return next(row for row in tables["events"] if row["kind"] == kind and all(row[name] > least for name, least in having.items()))


def longer(tables: Tables) -> None:
    row = of_kind(tables, REFUSED, throttle_ms=1)
    row["throttle_ms"] += 1
    row["applied_ms"] += 1


def forgotten(tables: Tables) -> None:
    row = of_kind(tables, OWED, throttle_ms=1)
    row["throttle_ms"] = row["applied_ms"] = 0


def let_through(tables: Tables) -> None:
    row = of_kind(tables, REFUSED)
    row["kind"] = CHARGED
    row["throttle_ms"] = row["applied_ms"] = 0


def turned_away(tables: Tables) -> None:
    of_kind(tables, CHARGED)["kind"] = REFUSED


def spurious(tables: Tables) -> None:
    row = of_kind(tables, CHARGED)
    row["throttle_ms"] = row["applied_ms"] = 7


def one_ulp(tables: Tables) -> None:
    tables["events"][50]["observed"] *= 1 + 2**-52


def one_more(tables: Tables) -> None:
    of_kind(tables, CHARGED)["value"] += 1


def found_more(tables: Tables) -> None:
    tables["events"][100]["before"] += 1.0


def other_time(tables: Tables) -> None:
    tables["events"][100]["since_ms"] -= 1


def lost(tables: Tables) -> None:
    del tables["events"][100]


def twice(tables: Tables) -> None:
    tables["events"].append(tables["events"][100])


def back_in_time(tables: Tables) -> None:
    tables["events"][100]["ts_ms"] -= 10_000_000


def other_bound(tables: Tables) -> None:
    tables["events"][3]["bound"] += 1.0


def not_applied(tables: Tables) -> None:
    of_kind(tables, REFUSED, throttle_ms=1)["applied_ms"] = 0


@pytest.mark.parametrize(
    ("mutate", "kind"),
    [
        (longer, "MATH"),
        (forgotten, "MISSED"),
        (let_through, "MISSED"),
        (turned_away, "SPURIOUS"),
        (spurious, "SPURIOUS"),
        (one_ulp, "MATH"),
        (one_more, "MATH"),
        (found_more, "MATH"),
        (other_time, "SEGMENT"),
        (lost, "GAP"),
        (twice, "GAP"),
        (back_in_time, "ORDER"),
        (other_bound, "BOUND"),
        (not_applied, "NOT_APPLIED"),
    ],
)
def test_every_mutation_is_found(tmp_path: Path, mutate: Callable[[Tables], None], kind: str) -> None:
    """One changed value is found under its kind, with the balance where a balance proves it."""
    verdict = validate(write_buckets(tmp_path, Buckets([5.0, 0.3]), [played()], mutate))
    assert kind in verdict.kinds()
    provable = {Kind.MATH, Kind.MISSED, Kind.SPURIOUS, Kind.SEGMENT}
    assert all(finding.evidence for _, finding in verdict.first() if finding.kind in provable)


def test_a_bucket_that_goes_on_otherwise_is_found(tmp_path: Path) -> None:
    """A file set whose first balance differs from the last one of the file set before it is a divergence."""
    seen: list[int] = []

    def forged(tables: Tables) -> None:
        seen.append(1)
        if len(seen) == 2:
            first = tables["events"][0]
            first["before"] += 0.25

    verdict = validate(write_buckets(tmp_path, Buckets([5.0]), [played(), played(seed=2)], forged))
    assert verdict.kinds().get("SEGMENT") == 1
    assert [verdict.name(key, finding) for key, finding in verdict.first()] == ["client-id c0 (ControllerMutation)"]


def test_a_new_bucket_is_full(tmp_path: Path) -> None:
    """A run that begins with less than a full bucket is a divergence."""

    def short(buckets: Buckets) -> None:
        buckets.groups[0]._bucket._last_update_ms = START_MS - 5_000
        buckets.step(0, 4, "strict")

    assert validate(write_buckets(tmp_path, Buckets([5.0]), [short])).kinds() == {"SEGMENT": 1}


def test_a_lost_file_set_is_no_divergence(tmp_path: Path) -> None:
    """After a missing file set the replay continues from the recorded balance, and the gap is reported."""
    write_buckets(tmp_path, Buckets([5.0, 0.3]), [played(seed=seed) for seed in range(3)])
    sorted((tmp_path / "manifests").rglob("*.json"))[1].unlink()
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.decisions, verdict.dropped) == ({}, 600, 300)


def test_decisions_lost_within_a_file_set_are_no_divergence(tmp_path: Path) -> None:
    """A reported gap interrupts the replay only where it is."""

    there: list[dict[str, Any]] = []

    def gap(tables: Tables) -> None:
        del tables["events"][100:110]
        there.extend(tables["events"])
        tables["gaps"] = [{"run_id": tables["events"][0]["run_id"], "from_seq": 100, "n": 10, "reason": "queue_full"}]

    write_buckets(tmp_path, Buckets([5.0]), [played()], gap)
    path = next((tmp_path / "manifests").rglob("*.json"))
    manifest = json.loads(path.read_text())
    manifest["dropped_decisions"] = 10
    manifest["counts"] = counts_of(there)
    path.write_text(json.dumps(manifest))
    verdict = validate(tmp_path)
    assert (verdict.kinds(), verdict.decisions) == ({}, 290)


def test_steps_without_states_are_found(tmp_path: Path) -> None:
    """Without states, waits that were not applied are a divergence."""

    def stateless(tables: Tables) -> None:
        del tables["states"]
        for row in tables["events"]:
            row["applied_ms"] = 0

    assert validate(write_buckets(tmp_path, Buckets([5.0]), [played()], stateless)).kinds() == {"GAP": 1}


def test_in_observe_nothing_was_applied(tmp_path: Path) -> None:
    """In observe an applied wait is a divergence, and a wait that was not applied is none."""

    def unapplied(tables: Tables) -> None:
        for row in tables["events"]:
            row["applied_ms"] = 0

    assert validate(write_buckets(tmp_path / "right", Buckets([5.0]), [played()], unapplied, "observe")).kinds() == {}
    assert set(validate(write_buckets(tmp_path / "wrong", Buckets([5.0]), [played()], mode="observe")).kinds()) == {"NOT_APPLIED"}


def test_a_quota_file_says_whose_bucket_it_is(tmp_path: Path) -> None:
    """With the quota file that was in force, a bucket of the wrong group and one with the wrong bound are found."""
    right, wrong = tmp_path / "right.toml", tmp_path / "wrong.toml"
    right.write_text('[[quota]]\nclient-id = "c0"\ncontroller_mutation_rate = 5\n')
    wrong.write_text('[[quota]]\nclient-id = "c0"\ncontroller_mutation_rate = 6\n')

    def kinds(path: Path) -> dict[str, int]:
        import hashlib

        source = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"

        def sourced(tables: Tables) -> None:
            for row in tables["dim_bound"]:
                row["source"] = source
            tables["dim_client"] = [
                {"run_id": tables["events"][0]["run_id"], "client_ref": 0, "principal_type": "User", "principal": "ann", "client_id": "c0"}
                | {"name_form": "plain"}
            ]

        directory = write_buckets(tmp_path / path.stem, Buckets([5.0]), [played()], sourced)
        found = check_by_file(run_local, directory, checked_runs(directory), path)
        return {kind.value: number for one in found.values() for kind, number in one.counts.items()}

    assert (kinds(right), kinds(wrong)) == ({}, {"BOUND": 1})
    with pytest.raises(BadInputError, match="comes from this file"):
        check_by_file(run_local, tmp_path / "right", checked_runs(tmp_path / "right"), wrong)
