"""`sluice fleet status` prints the members of a fleet, and its exit code says whether something is wrong."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.observe.fleet import NO_FLEET, FleetReport, fleet_page
from sluice_cli.fleet import problems_of, table
from sluice_cli.root import cli
from tests.support.memory.fleet_reports import OWN, SECOND, fleet_report, member
from tests.support.places import ROOT
from tests.support.processes.changing_port import ChangingPort

METRICS = (ROOT / "docs/reference/metrics.md").read_text()
OTHER_QUOTAS = "other quotas: edge-2: each member enforces its own; give all members the same quotas and switches"
OTHER_SETTING = "write the same fleet.connections at all members, and restart them"
SHARING = member("edge-1", 0, shares_connections=True)
OTHER_VERSION = "messages of version 2, 3 cannot be read, and the usage in them does not count here: upgrade the older members"


async def status_of(folder: Path, report: FleetReport | None, *options: str) -> Result:
    """Run the command in a thread, while the event loop serves an admin port with this report."""
    async with ChangingPort(folder) as port:
        port.state.fleet_report = report
        where = ("--admin", f"http://{port.address}", "--admin-token", str(folder / "ro.token"))
        return await asyncio.to_thread(CliRunner().invoke, cli, ["fleet", "status", *where, *options])


async def test_the_documented_output_is_what_the_command_prints(tmp_path: Path) -> None:
    """For the page of the document the command prints the lines of the document, with exit code 0."""
    section = METRICS.split("\n## Fleet\n", 1)[1].split("\n## ", 1)[0]
    page = json.loads(re.findall(r"^```json\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0])
    lines = re.findall(r"^```\n\$ sluice fleet status .*?\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0]
    report = fleet_report()
    assert page == json.loads(json.dumps(fleet_page(report, 0.0)))
    result = await status_of(tmp_path, report)
    assert (result.exit_code, result.stdout) == (0, lines)


@pytest.mark.parametrize(
    ("report", "exit_code", "last_lines"),
    [
        pytest.param(fleet_report(members=[OWN]), 0, ["cut off: no"], id="alone"),
        pytest.param(
            fleet_report(is_cut_off=True, problem="does not exist", echo_age_ms=41_960),
            1,
            ["cut off: since 2023-11-14 22:12:38+00:00, for 42.0 s: does not exist"],
            id="cut-off",
        ),
        pytest.param(
            FleetReport(None, 0, 1),
            1,
            ["bus: not known yet, lag: not measured yet", "cut off: since the start of the hub: the hub has not reported yet"],
            id="not-joined-yet",
        ),
        pytest.param(fleet_report(members=[OWN, member("edge-2", has_equal_quotas=False)]), 1, [OTHER_QUOTAS], id="other-quotas"),
        pytest.param(
            fleet_report(members=[OWN, member("edge-2", 9_000, has_equal_quotas=False)]),
            0,
            ["cut off: no"],
            id="other-quotas-of-a-silent-one",
        ),
        pytest.param(
            fleet_report(members=[OWN, member("edge-2", shares_connections=True, has_equal_limits=False)]),
            1,
            [f"connections are not shared by this member, but by edge-2: {OTHER_SETTING}"],
            id="connections-are-shared-by-another-one",
        ),
        pytest.param(
            fleet_report(members=[SHARING, member("edge-2", has_equal_limits=False)]),
            1,
            [f"connections are shared by this member, and not by edge-2: {OTHER_SETTING}"],
            id="connections-are-not-shared-by-another-one",
        ),
        pytest.param(
            fleet_report(members=[SHARING, member("edge-2", shares_connections=True, has_equal_limits=False), SECOND]),
            1,
            ["other limits on connections: edge-2: each member enforces its own; give all members the same limits"],
            id="other-limits",
        ),
        pytest.param(fleet_report(unreadable_versions=[2, 3]), 1, ["cut off: no", OTHER_VERSION], id="other-versions"),
    ],
)
async def test_what_is_wrong_is_said_with_exit_code_1(tmp_path: Path, report: FleetReport, exit_code: int, last_lines: list[str]) -> None:
    """The last lines name what is wrong with its remedy, and then the exit code is 1, with --json as well."""
    result = await status_of(tmp_path, report)
    assert result.exit_code == exit_code
    assert result.stdout.splitlines()[-len(last_lines) :] == last_lines
    as_json = await status_of(tmp_path, report, "--json")
    assert as_json.exit_code == exit_code
    assert json.loads(as_json.stdout) == json.loads(json.dumps(fleet_page(report, 1_700_000_000.0)))


async def test_without_a_fleet_the_answer_is_one_line(tmp_path: Path) -> None:
    """Without a fleet the command prints one line on stderr, with exit code 1."""
    result = await status_of(tmp_path, None)
    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(rf"sluice fleet: http://127\.0\.0\.1:\d+: {re.escape(NO_FLEET)}\n", result.stderr)


@pytest.mark.parametrize(
    ("arguments", "exit_code", "words"),
    [
        ([], 2, "--admin is missing; write the URL of Sluice's admin port, such as http://127.0.0.1:9644"),
        (["--admin", "ftp://x"], 2, "--admin: ftp://x is not the URL of an admin port; write http://HOST:PORT"),
        (["--admin", "http://127.0.0.1"], 2, "--admin: http://127.0.0.1 has no port; write http://HOST:PORT"),
        (["--admin", "http://127.0.0.1:1", "--admin-token", "none"], 2, "--admin-token: none cannot be read: No such file or directory"),
        (["--admin", "http://127.0.0.1:1", "--admin-ca", "none"], 2, "none cannot be used: No such file or directory"),
        (["extra"], 2, "unexpected extra argument (extra)"),
        (["--admin", "http://127.0.0.1:1"], 1, "sluice fleet: http://127.0.0.1:1: Connection refused"),
    ],
)
def test_bad_usage_and_a_port_without_an_answer(
    tmp_path: Path, arguments: list[str], exit_code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong usage has exit code 2, a port that does not answer 1, and the message says what is wrong."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, ["fleet", "status", *arguments])
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert words in result.stderr


def test_columns_are_aligned() -> None:
    """Each cell of the table begins where its column begins, a missing text is a dash, and names are safe to print."""
    members = fleet_page(fleet_report(members=[OWN, member("a\x1b[31m-long-name", 12_060, version="")]), 0.0)["members"]
    assert list(table(members)) == [
        "member                 version  enforcement  last heard   equal quotas",
        "edge-1                 1.0.0    delay        this member  yes",
        "a\\u001b[31m-long-name  -        delay        12.1 s ago   yes",
    ]


def test_the_table_says_who_shares_connections() -> None:
    """If a member shares connections, a further column says which members do."""
    members = fleet_page(fleet_report(members=[SHARING, SECOND]), 0.0)["members"]
    assert [line.split("equal quotas")[-1].split("yes", 1)[-1].strip() for line in table(members)] == ["shares connections", "yes", "no"]


def test_a_fleet_without_problems_has_no_lines() -> None:
    """Members with equal quotas and versions give no line."""
    assert list(problems_of(fleet_page(fleet_report(members=[OWN, SECOND]), 0.0))) == []
