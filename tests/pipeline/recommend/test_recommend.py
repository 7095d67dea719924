"""Recommendations, and their round trip: the proxy and `whatif` accept a recommended file."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from pipeline.quotas.file import read_quota_file
from pipeline.recommend.proposal import Proposal, rounded_up
from pipeline.recommend.quota_file import quota_text
from proxy.metering.forget import FORGOTTEN
from sluice_cli.meter import meter
from tests.pipeline.recommend.test_whatif import CAST
from tests.support.metering.metering_scene import Client, write_scene


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(meter, [str(argument) for argument in arguments])


def accepted(path: Path) -> bool:
    """Whether a proxy in a child process accepts the file."""
    command = [sys.executable, "-m", "sluice_cli", "check-config", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).returncode == 0


def test_what_is_recommended_goes_round(tmp_path: Path) -> None:
    """The proxy and `whatif` accept the file of `recommend`, and with the maximum as base no client would have waited."""
    source = write_scene(tmp_path / "in", 60, clients=CAST, file_set_s=20)
    proposal = tmp_path / "quotas.toml"
    reported = invoke("recommend", "--in", source, "--percentile", 100, "--headroom", 1.5, "--out", proposal)
    assert reported.exit_code == 0
    assert accepted(proposal)
    back = invoke("whatif", "--in", source, "--quotas", proposal, "--mode", "regroup")
    assert back.exit_code == 0
    assert "-> 0 ms, 3 groups" in back.stdout


def test_confidence_says_when_demand_is_hidden(tmp_path: Path) -> None:
    """A client that waited half the time gets low confidence with the reason; one that never waited gets a higher one."""
    cast = [CAST[0], Client("audit", "audit-log", "produce", 1e9, 2_000, 200)]
    outcome = invoke("recommend", "--in", write_scene(tmp_path, 90, clients=cast), "--format", "csv")
    by_group = {line.split(",")[0]: line for line in outcome.stdout.splitlines()}
    assert "low" in by_group["client-id checkout"]
    assert "what was wanted then is not known" in by_group["client-id checkout"]
    assert "medium" in by_group["client-id audit-log"]


def test_in_observe_demand_is_not_hidden(tmp_path: Path) -> None:
    """In `observe` the recorded usage counts as the demand, however many waits were decided."""

    def observed(tables: dict[str, list[dict[str, Any]]]) -> None:
        for row in tables["samples"]:
            row["applied_ms"], row["applied_ms_sum"] = [0] * len(row["applied_ms"]), 0
        for row in tables["states"]:
            row["mode"] = "observe"

    outcome = invoke("recommend", "--in", write_scene(tmp_path, 90, clients=CAST[:1], mutate=observed), "--format", "json")
    [proposal] = json.loads(outcome.stdout)["proposals"]
    assert (proposal["throttled_seconds"], proposal["confidence"]) == (0, "medium")


def test_nothing_is_recommended_to_who_was_forgotten(tmp_path: Path) -> None:
    """A group whose name was removed by `forget` gets no recommendation, and the output says so."""

    def forgotten(tables: dict[str, list[dict[str, Any]]]) -> None:
        tables["dim_group"][0].update(tag_user=FORGOTTEN, tag_client_id="")

    outcome = invoke("recommend", "--in", write_scene(tmp_path / "in", 60, clients=CAST, mutate=forgotten), "--out", tmp_path / "q.toml")
    assert outcome.exit_code == 0
    assert f"note        user {FORGOTTEN} (Produce): a quota file has no name for it" in outcome.stdout
    assert f'user = "{FORGOTTEN}"' not in (tmp_path / "q.toml").read_text()


@given(st.floats(0, 1e12), st.sampled_from(["Produce", "Request", "Connection", "ControllerMutation"]))
def test_rounding_goes_up_and_not_far(rate: float, quota_type: str) -> None:
    """A proposal is at least the rate, at most a tenth or one step above it, and an integer where the quota requires one."""
    bound = rounded_up(quota_type, rate)
    is_whole = quota_type in ("Produce", "Connection")
    step = 1.0 if is_whole else 0.1
    assert rate * (1 - 1e-9) <= bound <= max(rate * 1.1, rate + step, step) * (1 + 1e-9)
    assert not is_whole or bound == math.floor(bound)


@pytest.mark.parametrize("name", ["plain", 'qu"ote', "back\\slash", "tab\tand\nline", "ü€😀", "\x7f\x01", "a.b [c] = d # e"])
def test_any_name_survives_the_file(tmp_path: Path, name: str) -> None:
    """The proxy and the pipeline read every user and client-id name back from a recommended file unchanged."""
    made = Proposal(
        (None, name, None),
        name,
        "Produce",
        "window",
        "producer_byte_rate",
        1,
        0,
        1.0,
        1.0,
        1.0,
        1.0,
        99.0,
        10.0,
        1.0,
        1.0,
        None,
        4_200.0,
        "low",
        "a test",
    )
    path = tmp_path / "quotas.toml"
    path.write_text(quota_text([made], "a test"), encoding="utf-8")
    assert accepted(path)
    assert read_quota_file(path).bound("Produce", "", name) == 4_200.0


def test_nothing_to_recommend_is_said(tmp_path: Path) -> None:
    """Without a group that a quota file can name the command prints one line, ends with exit code 3 and writes no file."""

    def custom(tables: dict[str, list[dict[str, Any]]]) -> None:
        for group in tables["dim_group"]:
            group["tags"] = '{"team": "x"}'

    source = write_scene(tmp_path / "in", 5, clients=CAST, mutate=custom)
    outcome = invoke("recommend", "--in", source, "--out", tmp_path / "quotas.toml")
    assert (outcome.exit_code, outcome.stderr.count("\n")) == (3, 1)
    assert not (tmp_path / "quotas.toml").exists()
