"""FAIR, from the data path over the files to the verdict: members that get their shares pass, and one that is starved is found."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.replay.findings import Kind
from pipeline.validation.rules.shares import Passed, max_min_share, unfair
from pipeline.validation.verdict import Verdict
from proxy.enforcement.mode import Mode
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.line import PacedLine
from proxy.enforcement.paced.member import Place
from tests.proxy.session.paced.test_paced_members import BOUND
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.paced_clients import Client, Load

SECONDS = 21
GREEDY = [Load(1, 100_000), Load(4, 100_000)]


def validated(directory: Path, loads: Sequence[Load], mode: Mode = Mode.DELAY) -> tuple[Verdict, int]:
    """Return the verdict on the files of a run in which each load is a member, and the number of members in the files."""
    with MeteredFixture(directory, produce=BOUND, factories=PacedGroups(1_000), mode=mode) as proxy:
        for number, load in enumerate(loads):
            for _ in range(load.connections):
                Client(proxy, proxy.connect(host=f"10.0.0.{number + 1}"), load, []).send()
        for _ in range(SECONDS):
            proxy.wait(1_000)
            proxy.collect()
        verdict = proxy.written()
    return verdict, len({row["member_ref"] for row in proxy.rows("shares")})


def starve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the member that came first pass only when no other one waits."""

    def first(line: PacedLine) -> Place:
        return [member for member in line.root.members.values() if member.waiting][-1].waiting[0]

    monkeypatch.setattr(PacedLine, "_first", first)
    monkeypatch.setattr(PacedLine, "due_ns", lambda _line, _member: 0)


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param(GREEDY, id="1-and-4-connections"),
        pytest.param([Load(4, 20_000), Load(4, 200_000)], id="small-and-large-requests"),
        pytest.param([Load(1, 10_000, pause_ms=95), Load(2, 50_000), Load(2, 50_000)], id="one-wants-little"),
    ],
)
def test_members_with_their_shares_are_fair(tmp_path: Path, loads: Sequence[Load]) -> None:
    """Members that get equal shares of what they want give no divergence."""
    verdict, members = validated(tmp_path, loads)
    assert verdict.kinds() == {}
    assert members == len(loads)


def test_a_starved_member_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member whose requests pass only when nobody else waits is FAIR in each ten seconds, with what each member passed."""
    starve(monkeypatch)
    verdict, _ = validated(tmp_path, GREEDY)
    assert verdict.kinds() == {Kind.FAIR: 2}
    (findings,) = verdict.findings.values()
    [first] = findings.first.values()
    assert "client-id etl) in 10 s, in which it waited for more" in first.what
    assert len(first.evidence) == 2


def test_in_observe_nobody_has_a_share(tmp_path: Path) -> None:
    """In `observe` all that comes passes, and no share is recorded."""
    verdict, members = validated(tmp_path, GREEDY, Mode.OBSERVE)
    assert Kind.FAIR not in verdict.kinds()
    assert members == 0


@pytest.mark.parametrize(
    ("passed", "wanted_ms", "wrong"),
    [
        pytest.param([40, 60], [10_000, 10_000], [0], id="a-fifth-less-is-found"),
        pytest.param([44, 56], [10_000, 10_000], [], id="an-eighth-less-is-not"),
        pytest.param([10, 90], [9_400, 10_000], [], id="one-that-did-not-wait-throughout-is-not-judged"),
        pytest.param([30, 70], [10_000, 0], [0], id="another-that-never-waits-took-too-much"),
        pytest.param([10, 45, 45], [500, 10_000, 10_000], [], id="one-that-wants-little-keeps-that"),
        pytest.param([0, 50, 50], [10_000, 10_000, 10_000], [0], id="nothing-at-all"),
    ],
)
def test_shares_are_max_min_fair(passed: Sequence[int], wanted_ms: Sequence[int], wrong: Sequence[int]) -> None:
    """A member that wanted more throughout is found when it has 15 % less than the equal part of what the others leave."""
    members = [Passed(at, None, size * 1_000, 1, ms) for at, (size, ms) in enumerate(zip(passed, wanted_ms, strict=True))]
    assert [member.member_ref for member, _ in unfair(members)] == list(wrong)
    assert max_min_share(members) > 0
