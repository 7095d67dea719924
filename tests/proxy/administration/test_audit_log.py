"""The audit log as a file."""

# ruff: noqa: ASYNC240 - these tests read small files while nothing else runs

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from proxy.config.problem import ConfigProblems
from proxy.quota_admin.audit.audit import AuditUnavailable
from proxy.quota_admin.audit.chain import verify
from proxy.quota_admin.audit.file import BLOCK_BYTES
from proxy.quota_admin.audit.log import KEPT_BYTES_MAX, KEPT_LINES_MAX, AuditLog


def open_log(path: Path | None) -> AuditLog:
    log = AuditLog(path, wall_time_s=lambda: 1_700_000_000.25)
    log.open()
    return log


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    assert not data or data.endswith(b"\n")
    return data.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.jsonl"


async def written(path: Path, *names: str) -> None:
    log = open_log(path)
    for name in names:
        await log.append([{"event": name}])
    log.close()


async def test_lines_are_on_the_disk_when_append_returns(path: Path) -> None:
    """Each event is one line of JSON with its number, time and the previous line's digest, in a file that only the owner can read."""
    log = open_log(path)
    assert await log.append([{"event": "a"}, {"event": "b"}]) == 1
    assert await log.append([{"event": "c"}]) == 3
    first, second, third = (json.loads(line) for line in lines_of(path))
    assert first == {"seq": 1, "time": "2023-11-14T22:13:20.250+00:00", "prev": "0" * 64, "event": "a"}
    assert (second["seq"], third["event"]) == (2, "c")
    assert verify(lines_of(path)) == await log.verify()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    log.close()


async def test_a_restart_goes_on_where_it_ended(path: Path) -> None:
    """After a restart the numbers and digests continue the chain of the file."""
    for name in "abc":
        await written(path, name)
    assert verify(lines_of(path))._replace(last=None) == (3, 1, None, [])  # type: ignore[arg-type]


@pytest.mark.parametrize("torn", [b"{", b'{"seq":3,"time":"', b"x" * (BLOCK_BYTES * 2), b"\x00" * 10])
async def test_a_line_that_was_never_finished_is_cut_off_with_a_note(path: Path, torn: bytes) -> None:
    """An unfinished last line is removed, a `mended` line records its size, and the chain is valid."""
    await written(path, "a", "b")
    with path.open("ab") as file:
        file.write(torn)
    log = open_log(path)
    assert await log.append([{"event": "c"}]) == 4
    log.close()
    found = [json.loads(line) for line in lines_of(path)]
    assert [line["event"] for line in found] == ["a", "b", "mended", "c"]
    assert found[2]["cut_bytes"] == len(torn)
    assert verify(lines_of(path)).problems == []


async def test_a_file_with_nothing_but_a_torn_line_begins_anew(path: Path) -> None:
    """A file that holds only an unfinished line starts a new chain with a `mended` line."""
    path.touch(0o600)
    path.write_bytes(b'{"seq":1,"ti')
    await written(path, "a")
    assert [json.loads(line)["event"] for line in lines_of(path)] == ["mended", "a"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "the audit log cannot be opened: Is a directory"),
        (lambda path: path.symlink_to("elsewhere"), "the audit log cannot be opened: Too many levels of symbolic links"),
        (lambda path: (path.touch(), path.chmod(0o644)), r"the audit log is accessible to other users \(mode 0644\); run chmod 0640 on it"),
        (lambda path: (path.touch(), path.chmod(0o660)), r"the audit log is accessible to other users \(mode 0660\)"),
        (lambda path: (path.write_text("hello\n"), path.chmod(0o600)), "the audit log does not end with a line of an audit log"),
        (lambda path: os.mkfifo(path, 0o600), "the audit log is no file"),
    ],
)
def test_what_cannot_be_an_audit_log_is_refused_at_the_start(path: Path, make: object, words: str) -> None:
    """A path that cannot be an audit log is refused with one line that names the path and the remedy."""
    make(path)  # type: ignore[operator]
    with pytest.raises(ConfigProblems, match=f"audit.jsonl: {words}"):
        open_log(path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """A missing folder is reported and not created."""
    with pytest.raises(ConfigProblems, match=r"none/audit\.jsonl: the audit log cannot be opened: No such file or directory"):
        open_log(tmp_path / "none/audit.jsonl")


async def test_a_group_may_read_it(path: Path) -> None:
    """A file of mode 0640 is accepted and keeps its mode."""
    path.touch()
    path.chmod(0o640)
    await written(path, "a")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_only_one_process_writes_a_file(path: Path) -> None:
    """A second process cannot open an audit log that is in use."""
    log = open_log(path)
    with pytest.raises(ConfigProblems, match="the audit log is written by another process; give each Sluice a file of its own"):
        open_log(path)
    log.close()
    await written(path, "a")


async def test_a_file_that_was_put_away_is_begun_anew_and_the_chain_goes_on(path: Path) -> None:
    """After log rotation both files are valid and form one chain together."""
    log = open_log(path)
    await log.append([{"event": "a"}])
    await log.append([{"event": "b"}])
    old = path.rename(path.with_suffix(".1"))
    await log.append([{"event": "c"}])
    log.close()
    assert (len(lines_of(old)), len(lines_of(path))) == (2, 1)
    assert verify(lines_of(path))[1::2] == (3, [])
    assert verify(lines_of(old) + lines_of(path)).problems == []


async def test_another_log_in_its_place_is_not_written_to(path: Path) -> None:
    """A log that finds another log at its path refuses to write, and continues when that one is gone."""
    log = open_log(path)
    await log.append([{"event": "a"}])
    kept = path.rename(path.with_suffix(".1"))
    await written(path, "x", "y")
    with pytest.raises(AuditUnavailable, match="another audit log is in its place"):
        await log.append([{"event": "b"}])
    path.unlink()
    await log.append([{"event": "c"}])
    log.close()
    assert verify(lines_of(kept) + lines_of(path)).problems == []


async def test_a_disk_that_takes_half_a_line_leaves_none_of_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A partly written line is removed, the error names the file and the reason, and the chain continues when there is space."""
    log = open_log(path)
    await log.append([{"event": "a"}])
    write = os.write

    def half(file: int, data: bytes) -> int:
        if len(data) > 20:
            return write(file, data[:20])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(AuditUnavailable, match=f"audit.file: {path} cannot be written: No space left on device"):
        await log.append([{"event": "b"}])
    assert "No space" in (log.error or "")
    monkeypatch.undo()
    assert await log.append([{"event": "c"}]) == 2
    log.close()
    assert log.error is None
    assert [json.loads(line)["event"] for line in lines_of(path)] == ["a", "c"]
    assert verify(lines_of(path)).problems == []


async def test_history_is_read_from_its_end(path: Path) -> None:
    """History returns the newest lines first, up to the limit, across blocks of the file."""
    log = open_log(path)
    events = [{"event": "e", "text": "y" * (at * 97 % 5_000)} for at in range(1, 121)]
    await log.append(events)
    assert path.stat().st_size > 2 * BLOCK_BYTES
    assert [line["seq"] for line in await log.history(limit=1_000)] == list(range(120, 0, -1))
    assert [line["text"] for line in reversed(await log.history(limit=1_000))] == [event["text"] for event in events]
    assert [line["seq"] for line in await log.history(limit=3)] == [120, 119, 118]
    assert [line["seq"] for line in await log.history(limit=2, before=50)] == [49, 48]
    assert [line["seq"] for line in await log.history(limit=1_000, after=117)] == [120, 119, 118]
    log.close()


async def test_without_a_file_the_last_lines_are_kept() -> None:
    """Without a file the last lines up to a limit are kept in memory as a valid chain."""
    log = open_log(None)
    await log.append([{"event": "x"}] * KEPT_LINES_MAX)
    await log.append([{"event": "y"}])
    assert (await log.verify())[0:2] == (KEPT_LINES_MAX, 2)
    assert [line["event"] for line in await log.history(limit=2)] == ["y", "x"]
    for _ in range(5):
        await log.append([{"event": "long", "text": "z" * (KEPT_BYTES_MAX // 3)}])
    assert [line["event"] for line in await log.history(limit=10)] == ["long", "long"]
    assert (await log.verify()).problems == []


async def test_many_writers_at_once_make_one_chain(path: Path) -> None:
    """Concurrent appends form one valid chain, even when some are cancelled."""
    log = open_log(path)
    tasks = [asyncio.ensure_future(log.append([{"event": str(at)}])) for at in range(50)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    tasks[30].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    log.close()
    assert verify(lines_of(path)).problems == []
    assert len(lines_of(path)) in (48, 49)


def test_one_changed_letter_is_found(path: Path) -> None:
    """Verification of the file reports a changed letter."""
    asyncio.run(written(path, "a", "b", "c"))
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"B"'))
    assert verify(lines_of(path)).problems == [
        "line 3 (number 3) does not follow the line before it: that one was changed, or one is missing"
    ]
