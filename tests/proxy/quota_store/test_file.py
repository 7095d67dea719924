"""Quotas from a file that is edited, replaced, broken or removed."""

# ruff: noqa: ASYNC240 -- a test may wait for its own small files

import os
from pathlib import Path

import pytest

from proxy.config.problem import ConfigProblems
from proxy.quota_store.file.store import SMALL_FILE_BYTES, FileStore, read_quota_file
from proxy.quota_store.store import StoreContent


def quota(user: str, rate: int) -> str:
    return f'[[quota]]\nuser = "{user}"\nproducer_byte_rate = {rate}\n'


class Watched:
    """A file store with its own clock and the tables that it has reported."""

    def __init__(self, path: Path) -> None:
        self.now_ms = 1_000
        self.tables: list[dict[str | None, float]] = []
        self.meanwhile: list[str] = []
        """Contents that are written to the file, one at each wait of the store."""
        self._path = path
        self.source = FileStore(
            path, self._take, now_ms=lambda: self.now_ms, wall_time_s=lambda: self.now_ms / 1_000, pause=self._edit_meanwhile
        )

    async def _edit_meanwhile(self) -> None:
        if self.meanwhile:
            self._path.write_text(self.meanwhile.pop(0))

    def _take(self, content: StoreContent, _: str) -> None:
        self.tables.append({entity[0][1]: values["producer_byte_rate"] for entity, values in content.quotas.items()})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.toml"
    path.write_text(quota("alice", 10))
    return path


@pytest.fixture
async def watched(path: Path) -> Watched:
    watched = Watched(path)
    await watched.source.start()
    return watched


async def test_start_hands_on_what_the_file_holds(watched: Watched, path: Path) -> None:
    """The start reports the file's quotas."""
    assert watched.tables == [{"alice": 10.0}]
    assert watched.source.status == (f"file:{path}", 1, 1.0, 1_000, None, 0, 0)


async def test_start_with_a_wrong_file_fails(tmp_path: Path) -> None:
    """The start fails without a valid file."""
    with pytest.raises(ConfigProblems):
        await Watched(tmp_path / "nowhere.toml").source.start()


async def test_a_file_that_is_written_in_place_is_waited_for(watched: Watched, path: Path) -> None:
    """A file that is being written in place is read only when it is stable, so no partial content applies."""
    path.write_text("")
    watched.meanwhile = [quota("alice", 20), quota("alice", 20) + quota("bob", 30)]
    assert await watched.source.poll()
    assert watched.tables == [{"alice": 10.0}, {"alice": 20.0, "bob": 30.0}]
    path.write_text("")
    watched.meanwhile = [quota("alice", 20) + quota("bob", 30)]
    assert await watched.source.poll()
    assert len(watched.tables) == 2, "it holds what it held"
    path.write_text("")
    watched.meanwhile = ["[[quo"]
    assert not await watched.source.reload()
    assert len(watched.tables) == 2


async def test_a_file_that_never_rests_is_taken_as_it_is(watched: Watched, path: Path) -> None:
    """A file that changes all the time is read after a limited wait."""
    path.write_text(quota("alice", 11))
    watched.meanwhile = [quota("alice", rate) for rate in range(12, 200)]
    assert await watched.source.poll()
    assert len(watched.tables) == 2
    assert watched.meanwhile


async def test_an_edit_is_seen_and_an_unchanged_file_is_not_handed_on_again(watched: Watched, path: Path) -> None:
    """Each new content is reported once, and a poll without a change renews the time of the last success."""
    watched.now_ms = 2_000
    assert await watched.source.poll()
    assert watched.source.status.last_success_ms == 2_000
    path.write_text(quota("alice", 20) + quota("bob", 30))
    assert await watched.source.poll()
    assert await watched.source.poll()
    assert watched.tables == [{"alice": 10.0}, {"alice": 20.0, "bob": 30.0}]
    assert watched.source.status.entries == 2


async def test_an_edit_that_keeps_size_and_time_is_seen(watched: Watched, path: Path) -> None:
    """An edit of a small file is seen although size, time and inode stay the same."""
    stat = path.stat()
    with path.open("r+") as file:
        file.write(quota("alice", 99))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_ino) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    await watched.source.poll()
    assert watched.tables[-1] == {"alice": 99.0}


async def test_a_rename_and_a_symlink_swap_are_seen(watched: Watched, path: Path, tmp_path: Path) -> None:
    """A replacement by rename or by symlink is seen."""
    (tmp_path / "new").write_text(quota("alice", 50))
    (tmp_path / "new").rename(path)
    await watched.source.poll()
    (tmp_path / "other").write_text(quota("alice", 60))
    path.unlink()
    path.symlink_to("other")
    await watched.source.poll()
    assert watched.tables[1:] == [{"alice": 50.0}, {"alice": 60.0}]


async def test_a_large_file_is_read_only_when_its_stat_changed(watched: Watched, path: Path) -> None:
    """A file above `SMALL_FILE_BYTES` is read again only when its stat has changed."""
    filler = "#" * SMALL_FILE_BYTES + "\n"
    path.write_text(filler + quota("alice", 70))
    await watched.source.poll()
    stat = path.stat()
    with path.open("r+") as file:
        file.write(filler + quota("alice", 80))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    watched.now_ms = 5_000
    assert await watched.source.poll()
    assert watched.tables[-1] == {"alice": 70.0}
    assert watched.source.status.last_success_ms == 5_000
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    await watched.source.poll()
    assert watched.tables[-1] == {"alice": 80.0}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b'[[quota]]\nuser = "ali', "is not TOML", id="half-written"),
        pytest.param(
            quota("alice", 20).encode() + quota("bob", 0).encode(), "quota[2].producer_byte_rate: 0 is not above 0", id="half-right"
        ),
        pytest.param(b"\xff\xfe", "is not UTF-8", id="binary"),
        pytest.param(b"#" * (16 * 1024 * 1024 + 1), "is larger than 16777216 bytes", id="over-16-MiB"),
        pytest.param(None, "cannot be read: No such file or directory", id="missing"),
    ],
)
async def test_b9_a_file_that_cannot_be_used_changes_nothing(watched: Watched, path: Path, data: bytes | None, reason: str) -> None:
    """While the file cannot be used the last valid quotas stay and the status has the reason."""
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    watched.now_ms = 9_000
    for look in (watched.source.poll, watched.source.poll, watched.source.reload):
        assert not await look()
    assert watched.tables == [{"alice": 10.0}]
    assert watched.source.content.quotas == {(("user", "alice"),): {"producer_byte_rate": 10.0}}
    status = watched.source.status
    assert (status.entries, status.last_success_ms) == (1, 1_000)
    assert status.error is not None
    assert reason in status.error
    path.write_text(quota("alice", 11))
    assert await watched.source.poll()
    assert watched.tables == [{"alice": 10.0}, {"alice": 11.0}]
    assert watched.source.status.error is None


async def test_the_good_file_coming_back_clears_the_error(watched: Watched, path: Path) -> None:
    """When the former content returns the error is cleared."""
    path.write_text("broken")
    assert not await watched.source.poll()
    path.write_text(quota("alice", 10))
    assert await watched.source.poll()
    assert watched.source.status.error is None
    assert watched.tables == [{"alice": 10.0}]


async def test_a_file_that_stays_wrong_is_reported_once(watched: Watched, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that stays invalid is logged once."""
    path.write_text("broken")
    for _ in range(5):
        await watched.source.poll()
    assert [record.getMessage() for record in caplog.records] == ["quotas_rejected"]


def test_a_directory_is_no_quota_file(tmp_path: Path) -> None:
    """A directory in place of the file is refused with one line."""
    with pytest.raises(ConfigProblems, match=r"Is a directory") as caught:
        read_quota_file(tmp_path)
    assert caught.value.lines() == [f"{tmp_path}: cannot be read: Is a directory; name a file that Sluice may read"]
