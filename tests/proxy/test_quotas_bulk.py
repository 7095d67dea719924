"""`sluice quotas apply`, `diff`, `history`, `rollback` and `switch` work through an admin port."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from proxy.quota_admin.requester import Requester
from quota.admin.messages import Alteration, Op, entity_key
from sluice.admin import ClientQuotaEntity
from sluice_cli.quotas.bulk import BATCH_ENTRIES, Difference, alterations, batches, differences, lines_of, result_of
from sluice_cli.quotas.command import quotas
from tests.support.metering.metering_scene import START_MS, Client, write_scene
from tests.support.processes.changing_port import ChangingPort

RATE = "producer_byte_rate"
ALICE, BOB = ClientQuotaEntity.of({"user": "alice"}), ClientQuotaEntity.of({"user": "bob"})
FILE = """
[[quota]]
user = "alice"
producer_byte_rate = "1MiB"
consumer_byte_rate = 5000

[[quota]]
client-id = "<default>"
request_percentage = 12.5

[[quota]]
ip = "10.0.0.1"
connection_creation_rate = 20
"""


class ProxyFixture:
    """An admin port, and the command line that talks to it."""

    def __init__(self, port: ChangingPort, folder: Path) -> None:
        self.port = port
        self.folder = folder
        self.file = folder / "quotas.toml"
        self.file.write_text(FILE)

    async def run(self, *arguments: str, by: str = "ops", answer: str | None = None) -> Result:
        """Run one command in a thread, while the event loop serves the port."""
        where = ("--admin", f"http://{self.port.address}", "--admin-token", str(self.folder / f"{by}.token"))
        return await asyncio.to_thread(CliRunner().invoke, quotas, [*arguments, *where], input=answer)

    @property
    def kept(self) -> dict[str, dict[str, float]]:
        return {
            ",".join(f"{kind}={name}" for kind, name in entity): dict(values) for entity, values in self.port.store.content.quotas.items()
        }


ALL = {
    "user=alice": {RATE: 1_048_576.0, "consumer_byte_rate": 5_000.0},
    "client-id=None": {"request_percentage": 12.5},
    "ip=10.0.0.1": {"connection_creation_rate": 20.0},
}


@pytest.fixture
async def proxy(tmp_path: Path) -> AsyncIterator[ProxyFixture]:
    async with ChangingPort(tmp_path) as port:
        yield ProxyFixture(port, tmp_path)


async def test_a_file_is_applied_and_then_nothing_differs(proxy: ProxyFixture) -> None:
    """`apply` sets every quota of a file at once, and a second `apply` and a `diff` find no difference."""
    done = await proxy.run("apply", str(proxy.file), "--yes")
    assert (done.exit_code, done.output.splitlines()) == (
        0,
        [
            "+ default client-id: request_percentage=12.5",
            "+ ip '10.0.0.1': connection_creation_rate=20",
            "+ user 'alice': consumer_byte_rate=5000",
            "+ user 'alice': producer_byte_rate=1048576",
            "4 values of 3 entities changed",
        ],
    )
    assert proxy.kept == ALL
    again = await proxy.run("apply", str(proxy.file), "--yes")
    assert (again.exit_code, again.output) == (0, "nothing to change\n")
    same = await proxy.run("diff", str(proxy.file), by="ro")
    assert (same.exit_code, same.output) == (0, "nothing differs\n")


async def test_what_is_not_in_the_file_stays_unless_pruned(proxy: ProxyFixture) -> None:
    """`diff` shows quotas that are not in the file with exit code 1, and `apply` deletes them only with `--prune`."""
    await proxy.run("apply", str(proxy.file), "--yes")
    proxy.file.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 7\n')
    differing = await proxy.run("diff", str(proxy.file), by="ro")
    assert (differing.exit_code, differing.output.splitlines()) == (
        1,
        [
            "- default client-id: request_percentage=12.5",
            "- ip '10.0.0.1': connection_creation_rate=20",
            "- user 'alice': consumer_byte_rate=5000",
            "~ user 'alice': producer_byte_rate=1048576 -> 7",
            "4 values of 3 entities differ",
        ],
    )
    kept = await proxy.run("apply", str(proxy.file), "--yes")
    assert f"3 values that are not in {proxy.file} stay; --prune deletes them" in kept.output
    assert proxy.kept == ALL | {"user=alice": {RATE: 7.0, "consumer_byte_rate": 5_000.0}}
    assert (await proxy.run("apply", str(proxy.file), "--yes", "--prune")).exit_code == 0
    assert proxy.kept == {"user=alice": {RATE: 7.0}}


async def test_nothing_is_changed_before_all_is_judged(proxy: ProxyFixture) -> None:
    """`apply` changes nothing when one entity of the file is refused."""
    proxy.file.write_text(FILE + f'[[quota]]\nuser = "{"x" * 2_000}"\nproducer_byte_rate = 5\n')
    done = await proxy.run("apply", str(proxy.file), "--yes")
    assert done.exit_code == 1
    assert "INVALID_REQUEST: A name may have at most 1024 bytes." in done.output
    assert done.output.endswith("sluice quotas: 1 of 4 entities were refused; nothing was changed\n")
    assert proxy.kept == {}


async def test_without_a_terminal_nothing_is_confirmed(proxy: ProxyFixture) -> None:
    """`apply` needs --yes when there is no terminal."""
    done = await proxy.run("apply", str(proxy.file))
    assert (done.exit_code, "confirmation needs a terminal; write --yes" in done.output, proxy.kept) == (2, True, {})


async def test_a_token_that_may_only_read_changes_nothing(proxy: ProxyFixture) -> None:
    """`apply` with a read-only token is refused in one line."""
    done = await proxy.run("apply", str(proxy.file), "--yes", by="ro")
    assert (done.exit_code, proxy.kept) == (1, {})
    assert done.output.endswith(': Token:ro may only read; a change needs a token with role = "write" ([[admin.tokens]])\n')


async def test_an_unknown_effect_is_not_confirmed_by_yes(proxy: ProxyFixture) -> None:
    """`apply --yes` with a metering directory that tells nothing changes nothing, says why, and names the remedy."""
    done = await proxy.run("apply", str(proxy.file), "--yes", "--metering", str(proxy.folder / "none"))
    assert (done.exit_code, proxy.kept) == (2, {})
    assert "the effect on the last day is unknown: " in done.output
    assert "none: no such directory" in done.output
    assert "--yes does not confirm a change with an unknown effect; omit --metering to make it" in done.output


@pytest.mark.parametrize(("answer", "kept", "exit_code"), [("y", ALL, 0), ("n", {}, 1)])
async def test_an_unknown_effect_is_asked_about(
    proxy: ProxyFixture, monkeypatch: pytest.MonkeyPatch, answer: str, kept: dict[str, dict[str, float]], exit_code: int
) -> None:
    """`apply --yes` asks at a terminal when the effect is unknown, and the answer decides."""
    monkeypatch.setattr("sluice_cli.quotas.apply.is_terminal", lambda: True)
    done = await proxy.run("apply", str(proxy.file), "--yes", "--metering", str(proxy.folder / "none"), answer=answer)
    assert "Change 4 values of 3 entities? [y/N]" in done.output
    assert (done.exit_code, proxy.kept) == (exit_code, kept)


async def test_the_effect_says_how_long_the_load_was(proxy: ProxyFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """`apply --metering` prints the length of the recorded load, and `--yes` confirms the change."""
    clients = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45)]
    scene = write_scene(proxy.folder / "metering", 60, clients=clients, file_set_s=20)
    monkeypatch.setattr("sluice_cli.quotas.impact.wall_time_s", lambda: START_MS / 1_000 + 3_600)
    done = await proxy.run("apply", str(proxy.file), "--yes", "--metering", str(scene))
    [line] = [line for line in done.output.splitlines() if line.startswith("on the last day")]
    assert re.match(
        r"on the last day of metering \((5\d(\.\d)?|60) s of recorded load\) 0 of 1 groups would be throttled, 0 of them newly; 1 were ",
        line,
    )
    assert (done.exit_code, proxy.kept) == (0, ALL)


async def test_history_tells_who_did_what(proxy: ProxyFixture) -> None:
    """`history` prints the last changes, oldest first, and verifies the audit log."""
    await proxy.run("apply", str(proxy.file), "--yes")
    await proxy.run("switch", "all", "observe")
    lines = (await proxy.run("history", "--limit", "2", by="ro")).output.splitlines()
    assert [line.split(" ", 4)[0] for line in lines] == ["6", "7"]
    assert lines[0].endswith(": asked to switch all")
    assert " http Token:ops 127.0.0.1:" in lines[1]
    assert lines[1].endswith(": all: no switch -> observe")
    assert '"event": "switched"' in (await proxy.run("history", "--limit", "1", "--json")).output
    whole = await proxy.run("history", "--verify", by="ro")
    assert (whole.exit_code, whole.output.startswith("7 lines, complete; the last is number 7 with SHA-256 ")) == (0, True)


async def test_rollback_goes_back_to_how_it_was(proxy: ProxyFixture) -> None:
    """`rollback` restores the quotas and switches of an earlier point in the audit log."""
    await proxy.run("apply", str(proxy.file), "--yes")
    before, at = proxy.kept, (await proxy.port.audit.history(limit=1))[0]["seq"]
    proxy.file.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 7\n[[quota]]\nuser = "bob"\nproducer_byte_rate = 8\n')
    await proxy.run("apply", str(proxy.file), "--yes", "--prune")
    await proxy.run("switch", "entity:user=alice", "off")
    done = await proxy.run("rollback", "--to", str(at), "--yes")
    assert done.exit_code == 0, done.output
    assert "- user 'bob': producer_byte_rate=8" in done.output
    assert (proxy.kept, dict(proxy.port.store.content.switches)) == (before, {})
    assert (await proxy.run("history", "--verify")).exit_code == 0
    again = await proxy.run("rollback", "--to", "0", "--yes")
    assert (again.exit_code, proxy.kept) == (0, {})


async def test_a_line_that_was_not_written_yet(proxy: ProxyFixture) -> None:
    """`rollback` to a number above the newest line of the history is refused, and names that line."""
    await proxy.run("apply", str(proxy.file), "--yes")
    newest = json.loads((await proxy.run("history", "--json", "--limit", "1")).output)["seq"]
    done = await proxy.run("rollback", "--to", "9999", "--yes")
    assert (done.exit_code, f"--to 9999: the newest line of the history is {newest}; nothing was changed" in done.output) == (1, True)


async def test_infinity_survives_history_and_rollback(proxy: ProxyFixture) -> None:
    """An infinite quota is shown by `describe` and `history` and removed by `rollback`."""
    parts, ops = (("user", "bob"),), [Op("request_percentage", math.inf, False)]
    writer = Requester("Token:ops", "http", "", "admin", "write")
    await proxy.port.administration.alter(writer, [Alteration(parts, ops)], validate_only=False)
    assert (await proxy.run("describe", "--user", "bob")).output == "user 'bob': request_percentage=inf\n"
    assert (await proxy.run("history", "--limit", "1")).output.endswith("request_percentage - -> inf\n")
    assert (await proxy.run("rollback", "--to", "0", "--yes")).exit_code == 0
    assert proxy.kept == {}


async def test_switches_are_printed_set_and_taken_away(proxy: ProxyFixture) -> None:
    """`switch` prints, sets and removes switches in their encoded form, and refuses an invalid one."""
    assert (await proxy.run("switch", by="ro")).output == "no switch is set; the configuration applies\n"
    assert (await proxy.run("switch", "entity:user=a b", "off")).output == "entity:user=a%20b: off\n"
    assert (await proxy.run("switch", "all", "observe")).output == "entity:user=a%20b: off\nall: observe\n"
    assert (await proxy.run("switch", "entity:user=a%20b", "default")).output == "all: observe\n"
    assert (await proxy.run("switch", "all")).exit_code == 2
    wrong = await proxy.run("switch", "everybody", "off")
    assert (wrong.exit_code, "is nothing to switch; write all, listener:NAME" in wrong.output) == (2, True)


async def test_pacings_are_printed_set_logged_and_taken_back(proxy: ProxyFixture) -> None:
    """`pacing` prints, sets and removes pacings, `history` prints them, `rollback` restores them, and an invalid one is refused."""
    assert (await proxy.run("pacing", by="ro")).output == "no pacing is set; the configuration applies\n"
    assert (await proxy.run("pacing", "entity:user=a b", "paced")).output == "entity:user=a%20b: paced\n"
    assert (await proxy.run("pacing", "all", "window")).output == "entity:user=a%20b: paced\nall: window\n"
    assert (await proxy.run("pacing", "entity:user=a%20b", "default")).output == "all: window\n"
    assert (await proxy.run("history", "--limit", "1")).output.endswith(": pacing of entity:user=a%20b: paced -> as configured\n")
    assert (await proxy.run("rollback", "--to", "2", "--yes")).exit_code == 0
    assert dict(proxy.port.store.content.pacing) == {"entity:user=a%20b": "paced"}
    assert (await proxy.run("pacing", "all")).exit_code == 2
    wrong = await proxy.run("pacing", "listener:a", "paced")
    assert (wrong.exit_code, "has no pacing; write all, group:NAME" in wrong.output) == (2, True)


async def test_single_quotas_pass_by_the_port_too(proxy: ProxyFixture) -> None:
    """`set`, `describe` and `delete` work through the admin port as through brokers."""
    assert (await proxy.run("set", "--user", "bob", "producer_byte_rate=1MiB")).output == "user 'bob': producer_byte_rate=1048576\n"
    assert (await proxy.run("set", "--user-default", "request_percentage=5")).output == "default user: request_percentage=5\n"
    assert (await proxy.run("describe", "--user", "bob", by="ro")).output == "user 'bob': producer_byte_rate=1048576\n"
    assert len((await proxy.run("describe", by="ro")).output.splitlines()) == 2
    assert (await proxy.run("delete", "--user-default")).output == "default user: no quota\n"
    assert proxy.kept == {"user=bob": {RATE: 1_048_576.0}}


async def test_explain_by_the_port_alone(proxy: ProxyFixture) -> None:
    """`explain` prints the levels of precedence and the current use through the admin port alone."""
    await proxy.run("apply", str(proxy.file), "--yes")
    lines = (await proxy.run("explain", "--user", "alice", "--client-id", "c", by="ro")).output.splitlines()
    assert lines[0] == "producer_byte_rate: 1048576"
    assert "  => user 'alice': 1048576" in lines
    rates = (await proxy.run("explain", "--ip", "192.0.2.7", by="ro")).output
    assert "now at 1: 192.0.2.7 opens 20 connections a second of 20, has 3 open" in rates


async def test_the_file_itself_is_read_and_checked(tmp_path: Path) -> None:
    """`history --audit` prints and verifies an audit file without a running proxy."""
    from proxy.quota_admin.audit.log import AuditLog

    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, wall_time_s=lambda: 1_700_000_000.0)
    log.open()
    who = {"way": "outside", "principal": None, "peer": "", "listener": ""}
    await log.append([{"event": "changed", "entity": {"user": "bob"}, "key": RATE, "old": None, "new": 5.0, **who}])
    await log.append([{"event": "changed", "entity": {"user": "bob"}, "key": RATE, "old": 5.0, "new": None, **who}])
    log.close()

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(quotas, ["history", "--audit", str(path), *arguments])

    assert run().output.splitlines() == [
        "1 2023-11-14T22:13:20.000+00:00 outside: user 'bob': producer_byte_rate - -> 5",
        "2 2023-11-14T22:13:20.000+00:00 outside: user 'bob': producer_byte_rate 5 -> -",
    ]
    assert run("--verify").exit_code == 0
    path.write_text(path.read_text().replace('"new":5.0', '"new":6.0'))
    changed = run("--verify")
    assert changed.exit_code == 1
    assert "line 2 (number 2) does not follow the line before it" in changed.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["apply", "none.toml", "--yes"], "--bootstrap-server is missing; write HOST:PORT of a broker or of Sluice"),
        (["switch"], "--admin is missing; write the URL of Sluice's admin port"),
        (["history"], "--admin is missing"),
        (["history", "--audit", "none.jsonl"], "--audit: none.jsonl cannot be read: No such file or directory"),
        (["switch", "--admin", "ftp://x"], "ftp://x is not the URL of an admin port; write http://HOST:PORT"),
        (["switch", "--admin", "http://127.0.0.1"], "http://127.0.0.1 has no port"),
        (["switch", "--admin", "http://127.0.0.1:1"], "http://127.0.0.1:1: Connection refused"),
        (
            ["switch", "--admin", "http://127.0.0.1:1", "--admin-token", "none"],
            "--admin-token: none cannot be read: No such file or directory",
        ),
        (
            ["describe", "--command-config", "none"],
            "none: cannot be read: No such file or directory; name a file of Kafka's client properties",
        ),
        (["describe"], "--bootstrap-server is missing"),
    ],
)
def test_what_was_typed_wrong_is_one_line(tmp_path: Path, arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong command line is refused with a message that says what to write."""
    monkeypatch.chdir(tmp_path)
    if "none.toml" in arguments:
        (tmp_path / "none.toml").write_text(FILE)
    result = CliRunner().invoke(quotas, arguments)
    assert result.exit_code in (1, 2)
    assert words in result.output


def test_differences_are_turned_into_requests_of_a_thousand() -> None:
    """Differences become one alteration per entity, in requests of at most a thousand entities."""
    wanted = {ClientQuotaEntity.of({"user": f"u{at}"}): {RATE: 1.0, "consumer_byte_rate": 2.0} for at in range(2_500)}
    found = differences({ALICE: {RATE: 5.0}}, wanted)
    assert len(found) == 5_001
    parts = list(batches(alterations(found)))
    assert [len(part) for part in parts] == [BATCH_ENTRIES, BATCH_ENTRIES, 501]
    assert result_of({ALICE: {RATE: 5.0}}, found) == wanted
    assert len(list(lines_of(found))) == 201
    assert alterations([Difference(BOB, RATE, None, 1.0), Difference(BOB, "request_percentage", 2.0, None)])[0].ops == {
        RATE: 1.0,
        "request_percentage": None,
    }
    assert entity_key([("user", "bob")]) == BOB.parts
