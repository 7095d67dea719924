"""`sluice top`: one print for scripts, and the program in a terminal."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from textual.widgets import DataTable, Static

from quota.entity import ClientQuotaEntity
from sluice_cli.admin.port import AdminPort
from sluice_cli.root import cli
from sluice_cli.top.app import GroupScreen, TopApp
from sluice_cli.top.command import NO_TEXTUAL
from sluice_cli.top.groups import LiveState
from sluice_cli.top.texts import arithmetic
from tests.support.processes.changing_port import READER, ChangingPort

HOSTILE = "[red]\x1b[2J"


async def top(port: ChangingPort, folder: Path, *options: str, holder: str = "ro") -> Result:
    """Run the command in a thread, while the event loop serves the admin port."""
    where = ("--admin", f"http://{port.address}", "--admin-token", str(folder / f"{holder}.token"))
    return await asyncio.to_thread(CliRunner().invoke, cli, ["top", *where, *options], catch_exceptions=False)


def waiting_port(folder: Path) -> ChangingPort:
    """Return an admin port whose proxy has a group that waits, one that does not, and one with a hostile name."""
    port = ChangingPort(folder)
    port.state.produce.limits[ClientQuotaEntity(None, "etl")] = 1_000.0
    port.state.produce.add(client_id=HOSTILE, bound=500.0).record(1_000, port.state.time_ms)
    return port


async def test_once(tmp_path: Path) -> None:
    """--once prints the state of the proxy, and its groups, worst first; names are safe to print."""
    async with waiting_port(tmp_path) as port:
        result = await top(port, tmp_path, "--once")
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0], lines[1]) == (0, "delay, ready", "quotas file:quotas.toml, 3 entries")
    assert "1 of 3 groups wait" in lines
    assert lines[5].split() == ["group", "broker", "quota", "rate", "bound", "use", "left", "waits/min", "members"]
    assert lines[6].split()[:3] == ["client-id=etl", "1", "produce"]
    assert "40 s" in lines[6]
    assert "\x1b" not in result.stdout


@pytest.mark.parametrize(
    ("options", "names"),
    [
        pytest.param(["--sort", "name"], ["client-id=[red]\x1b[2J", "client-id=etl", "client-id=etl"], id="by-name"),
        pytest.param(["--filter", "ETL", "--sort", "rate"], ["client-id=etl", "client-id=etl"], id="filtered"),
        pytest.param(["--filter", "none such"], [], id="none"),
    ],
)
async def test_json(tmp_path: Path, options: list[str], names: list[str]) -> None:
    """--format json prints the head and the selected groups with all their values."""
    async with waiting_port(tmp_path) as port:
        result = await top(port, tmp_path, "--once", "--format", "json", *options)
    page = json.loads(result.stdout)
    assert (page["head"]["mode"], page["groups_left_out"]) == ("delay", 0)
    assert [group["name"] for group in page["groups"]] == names


async def test_an_unknown_token(tmp_path: Path) -> None:
    """A token that is unknown is one line, and exit code 1."""
    async with ChangingPort(tmp_path) as port:
        (tmp_path / "bad.token").write_text(READER[::-1])
        result = await top(port, tmp_path, "--once", holder="bad")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "the token is unknown here" in result.stderr


async def test_without_textual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without textual the program names it; --once and json do not need it."""
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setitem(sys.modules, "sluice_cli.top.app", None)
    async with ChangingPort(tmp_path) as port:
        result = await top(port, tmp_path)
        assert (result.exit_code, result.stderr) == (1, f"sluice: {NO_TEXTUAL}\n")
        assert (await top(port, tmp_path, "--once")).exit_code == 0


async def test_in_a_terminal(tmp_path: Path) -> None:
    """The program lists groups, sorts, filters, and opens a group with its arithmetic; q ends it."""
    async with waiting_port(tmp_path) as port:
        app = TopApp(AdminPort(f"http://{port.address}", READER, None))
        async with app.run_test(size=(140, 40)) as pilot:
            await _until(pilot, lambda: _names(app) == ["client-id=etl", "client-id=[red]\\u001b[2J", "client-id=etl"])
            await pilot.press("s")
            assert "by rate" in _text(app, "#head")
            await pilot.press("slash", *"red", "enter")
            assert _names(app) == ["client-id=[red]\\u001b[2J"]
            await pilot.press("slash", "backspace", "backspace", "backspace", *"etl", "enter", "enter")
            await _until(pilot, lambda: isinstance(app.screen, GroupScreen) and "(O - T) / T x W" in _text(app, "#group"))
            assert "(5000 - 1000) / 1000 x 10000 ms = 40000 ms" in _text(app, "#group")
            await pilot.press("escape")
            assert not isinstance(app.screen, GroupScreen)
            await pilot.press("q")
        assert app.return_value is None


async def test_a_proxy_that_is_away() -> None:
    """When no proxy answers the program ends with the reason."""
    app = TopApp(AdminPort("http://127.0.0.1:1", None, None))
    async with app.run_test() as pilot:
        await _until(pilot, lambda: app.return_value is not None)
    assert app.return_value is not None
    assert app.return_value.startswith("http://127.0.0.1:1: ")


def test_the_arithmetic_of_mutations() -> None:
    """The wait of a token bucket is that for its missing tokens."""
    verdict = {"observed": -6.0, "bound": 4.0, "window_ms": 11_000, "throttle_ms": 1_500}
    assert arithmetic(verdict, "ControllerMutation") == "-O / T = 6 / 4 per s = 1500 ms"


def test_changes_are_applied() -> None:
    """Groups are added, changed and removed by their number."""
    state = LiveState()
    head = {"head": {"now_ms": 5}, "groups_left_out": 0}
    fields = ["broker", "quota_type", "name", "tags", "rule", "bound", "observed", "throttled_until_ms", "throttle_count"]
    row = [1, "1", "Fetch", "a", {}, "none", None, 1.0, 0, 0]
    state.apply("everything", {**head, "fields": fields, "groups": [row]})
    state.apply("changes", {**head, "head": {"now_ms": 6}, "added": [[2, *row[1:]]], "changed": [[1, 9.0, 4.0, 7, 1]], "removed": [2]})
    assert (state.now_ms, state.groups[1]["bound"], state.groups[1]["observed"], list(state.groups)) == (6, 9.0, 4.0, [1])


def _names(app: TopApp) -> list[str]:
    table: Any = app.query_one("#groups", DataTable)
    return [str(table.get_row_at(at)[0]) for at in range(table.row_count)]


def _text(app: TopApp, widget: str) -> str:
    return str(app.screen.query_one(widget, Static).content)


async def _until(pilot: Any, condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await pilot.pause(0.05)
