"""`sluice run --profile`: the time of each stage."""

from pathlib import Path

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.mode import Enforcement
from proxy.observe.profile import LOOP, STAGES, Profiler, Stage, render
from quota.entity import UNLIMITED


def test_time_goes_to_the_stage_that_spent_it() -> None:
    """The profiler attributes calls of `quota` to its stage and other code to the event loop."""
    group = EnforcedGroup({"user": "", "client-id": "a"}, UNLIMITED)
    profiler = Profiler()
    profiler.start()
    for at in range(1_000):
        group.record(1, at)
    sorted(range(100))
    Enforcement()
    stages = {stage.name: stage for stage in profiler.stop()}
    assert stages["quotas: record and check"].calls >= 1_000
    assert LOOP in stages


def test_every_path_of_a_stage_exists() -> None:
    """Each stage is given by files and folders of the source."""
    source = Path(__file__).parents[3]
    assert [path for _, paths in STAGES for path in paths if not (source / path).exists()] == []


def test_the_page_has_shares_that_add_up() -> None:
    """The page shows each stage's share and microseconds per request, also without a request."""
    stages = [Stage("channels", 10, 0.75), Stage(LOOP, 5, 0.25)]
    page = render(stages, 1_000)
    assert "channels" in page
    assert "75.0%" in page
    assert "750.00" in page
    assert page.endswith("1000 requests; Python calls cost about twice as much while they are profiled")
    assert "-" in render(stages, 0)
