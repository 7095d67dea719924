"""Alterations of the quota file: what is not changed keeps its formatting, and no update is lost."""

# ruff: noqa: ASYNC240 -- a test may wait for its own small files

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.config.problem import ConfigProblems
from proxy.quota_store.file.lock import FileLock
from proxy.quota_store.file.quota_file import read_quota_text
from proxy.quota_store.file.quota_text import altered, altered_whole, cut
from proxy.quota_store.file.store import FileStore
from proxy.quota_store.store import EMPTY, StoreChange, StoreContent, StoreUnavailable, SwitchChange, changed
from quota.admin.kraft import Change
from quota.admin.messages import EntityKey, entity_key
from tests.support.places import ROOT

ALICE, BOB = entity_key([("user", "alice")]), entity_key([("user", "bob")])
BOTH = entity_key([("user", "alice"), ("client-id", None)])
PRODUCE, FETCH, PERCENT = "producer_byte_rate", "consumer_byte_rate", "request_percentage"


def altered_text(text: str, *changes: StoreChange) -> str:
    """Return the text after the changes, made entry by entry."""
    before = read_quota_text(text.encode(), "q")
    pieces = cut(text, before)
    assert pieces is not None
    after = changed(before, changes)
    new = str(altered(pieces, before, after))
    assert read_quota_text(new.encode(), "q") == after
    return new


TYPED = """\
# Quotas of the shop.

# alice moves the orders
[[quota]]
user = "alice"      # since May
producer_byte_rate  =  "1MiB"   # was 2
consumer_byte_rate = 5

# bob is new
[[ quota ]]  # ask him
  user = 'bob'
  request_percentage = 50.0
  # the end
"""


def test_a_changed_value_changes_nothing_else() -> None:
    """A changed value leaves comments, blanks, order and other values as they are."""
    assert altered_text(TYPED, Change(ALICE, PRODUCE, 7.0)) == TYPED.replace('"1MiB"', "7")
    assert altered_text(TYPED, Change(BOB, PERCENT, 0.5)) == TYPED.replace("50.0", "0.5")


def test_a_new_value_stands_below_those_of_its_entity() -> None:
    """A new value is added below the entity's other values with their indent."""
    assert altered_text(TYPED, Change(BOB, FETCH, 9.0)) == TYPED.replace("50.0\n", "50.0\n  consumer_byte_rate = 9\n")
    assert altered_text(TYPED, Change(ALICE, PERCENT, 1e-7)) == TYPED.replace("= 5\n", "= 5\nrequest_percentage = 1e-07\n")


def test_an_entity_goes_with_its_last_value_and_with_the_comment_above_it() -> None:
    """An entity is removed with its last value and the comment above it, and other comments stay."""
    assert altered_text(TYPED, Change(BOB, PERCENT, None)) == TYPED[: TYPED.index("# bob is new")]
    without_alice = altered_text(TYPED, Change(ALICE, PRODUCE, None), Change(ALICE, FETCH, None))
    assert without_alice == TYPED[: TYPED.index("[[quota]]")] + TYPED[TYPED.index("# bob is new") :]


def test_new_entities_and_switches_are_appended() -> None:
    """New entities and switches are appended in order after a blank line."""
    changes = [
        Change(BOTH, PRODUCE, 1.0),
        SwitchChange("entity:user=alice", "observe"),
        Change(entity_key([("ip", None)]), "connection_creation_rate", 20.0),
    ]
    assert altered_text(TYPED.rstrip("\n"), *changes) == (
        TYPED + '\n[[quota]]\nuser = "alice"\nclient-id = "<default>"\nproducer_byte_rate = 1\n'
        '\n[[quota]]\nip = "<default>"\nconnection_creation_rate = 20\n'
        '\n[[switch]]\ntarget = "entity:user=alice"\nmode = "observe"\n'
    )
    assert altered_text("", SwitchChange("all", "off")) == '[[switch]]\ntarget = "all"\nmode = "off"\n'
    assert altered_text("# none yet", Change(BOB, FETCH, 2.0)) == '# none yet\n\n[[quota]]\nuser = "bob"\nconsumer_byte_rate = 2\n'


def test_windows_line_ends_stay() -> None:
    """A new line has the line ending of the file."""
    text = '[[quota]]\r\nuser = "bob"\r\nconsumer_byte_rate = 2\r\n'
    assert altered_text(text, Change(BOB, PRODUCE, 3.0)) == text + "producer_byte_rate = 3\r\n"


@pytest.mark.parametrize(
    "text",
    [
        'quota = [ { user = "bob", consumer_byte_rate = 2 }, { user = "alice", producer_byte_rate = 3 } ]\n',
        'quota = [\n  { user = "bob", consumer_byte_rate = 2 }, # a comment\n]\n',
        "quota = []\n",
        '[[quota]]\nuser = """\n[[quota]]\n"""\nconsumer_byte_rate = 2\n',
        '[["quota"]]\n"user" = "bob"\nconsumer_byte_rate = 2\n',
        '[[switch]]\ntarget = "all"\nmode = "off"\n[["quota"]]\n"user" = "bob"\nconsumer_byte_rate = 2\n',
    ],
)
def test_unusual_but_valid_toml_can_be_altered_too(text: str) -> None:
    """TOML that cannot be edited line by line is altered with tomlkit."""
    before = read_quota_text(text.encode(), "q")
    assert cut(text, before) is None
    for changes in (
        [Change(ALICE, PRODUCE, 4.0)],
        [Change(BOB, FETCH, 5.0)],
        [Change(BOTH, FETCH, 5.0), Change(BOB, FETCH, None)],
        [SwitchChange("all", "observe")],
    ):
        after = changed(before, changes)
        assert read_quota_text(altered_whole(text, before, after).encode(), "q") == after


def test_an_entry_with_unusual_lines_is_altered_by_tomlkit() -> None:
    """An entry with unusual lines is altered with tomlkit and keeps its comments."""
    text = TYPED + '\n[[quota]]\n"user" = "c\\u0061rl"   # quoted\nconsumer_byte_rate = 2 # two\n'
    carl = entity_key([("user", "carl")])
    assert altered_text(text, Change(carl, FETCH, 3.0)) == text.replace("= 2 # two", "= 3 # two")
    assert altered_text(text, Change(carl, PRODUCE, 3.0), Change(carl, FETCH, None)).startswith(TYPED)


NAMES = st.one_of(
    st.none(),
    st.sampled_from(["alice", "<default>", 'a"b\\c', "[[quota]]", "# no", "\x7f\t\n", "ü€😀", "a = 1"]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8),
)
ENTITIES = st.one_of(
    st.dictionaries(st.sampled_from(["user", "client-id"]), NAMES, min_size=1).map(lambda parts: entity_key(list(parts.items()))),
    st.sampled_from([None, "10.0.0.1", "::1", "etl.example.org"]).map(lambda ip: (("ip", ip),)),
)


@st.composite
def change_lists(draw: st.DrawFn) -> list[StoreChange]:
    changes: list[StoreChange] = []
    for entity in draw(st.lists(ENTITIES, max_size=6)):
        values: dict[str, st.SearchStrategy[float]] = {"connection_creation_rate": st.integers(0, 2**31 - 1).map(float)}
        if entity[0][0] != "ip":
            whole = st.integers(1, 2**63 - 1).map(float)
            values = {PRODUCE: whole, FETCH: whole, PERCENT: st.floats(0, exclude_min=True, allow_nan=False)}
        key = draw(st.sampled_from(sorted(values)))
        changes.append(Change(entity, key, draw(st.one_of(st.none(), values[key]))))
    targets, modes = st.sampled_from(["all", "listener:a", "entity:user=a%22b"]), st.sampled_from([None, "off", "observe", "enforce"])
    paced_targets, pacings = st.sampled_from(["all", "group:a", "entity:user=a%22b"]), st.sampled_from([None, "window", "paced"])
    switches = st.builds(SwitchChange, targets, modes, st.just("switches"))
    return changes + draw(st.lists(switches | st.builds(SwitchChange, paced_targets, pacings, st.just("pacing")), max_size=3))


@settings(max_examples=60, deadline=None)
@given(st.lists(change_lists(), max_size=4))
def test_any_changes_can_be_written_and_read_again(batches: list[list[StoreChange]]) -> None:
    """After any changes the file reads back as the store's content."""
    content = EMPTY
    pieces = cut("", EMPTY)
    for batch in batches:
        assert pieces is not None
        after = changed(content, batch)
        pieces, content = altered(pieces, content, after), after
        assert read_quota_text(str(pieces).encode(), "q") == content
        again = cut(str(pieces), read_quota_text(str(pieces).encode(), "q"))
        assert again is None or again.entries.keys() == pieces.entries.keys()


# --- the file store


class ProxyFixture:
    """A file store and the contents that it has reported."""

    def __init__(self, path: Path, **options: bool) -> None:
        self.seen: list[tuple[str, StoreContent]] = []
        self.store = FileStore(
            path, lambda content, origin: self.seen.append((origin, content)), now_ms=lambda: 1, wall_time_s=lambda: 1.0, **options
        )

    async def set(self, entity: EntityKey, key: str, value: float | None) -> None:
        await self.store.alter(lambda _: (None, [Change(entity, key, value)]))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.toml"
    path.write_text(TYPED)
    path.chmod(0o640)
    return path


@pytest.fixture
async def proxy(path: Path) -> ProxyFixture:
    proxy = ProxyFixture(path)
    await proxy.store.start()
    return proxy


async def test_an_alteration_is_in_the_file_and_in_force(proxy: ProxyFixture, path: Path) -> None:
    """An alteration is in the file and in force when it returns, and one without effect writes nothing."""
    inode = path.stat().st_ino
    await proxy.set(ALICE, PRODUCE, 7.0)
    assert path.read_text() == TYPED.replace('"1MiB"', "7")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.stat().st_ino != inode
    assert [origin for origin, _ in proxy.seen] == ["start", "own"]
    assert proxy.seen[-1][1] is proxy.store.content
    inode = path.stat().st_ino
    await proxy.set(ALICE, PRODUCE, 7.0)
    assert path.stat().st_ino == inode
    assert await proxy.store.reload()
    assert len(proxy.seen) == 2
    assert sorted(one.name for one in path.parent.iterdir()) == ["quotas.toml", "quotas.toml.lock"]


async def test_an_edit_by_hand_that_came_before_is_taken_first(proxy: ProxyFixture, path: Path) -> None:
    """An alteration after a manual edit keeps both."""
    path.write_text(TYPED.replace("= 5", "= 6"))
    await proxy.set(BOB, FETCH, 8.0)
    assert [origin for origin, _ in proxy.seen] == ["start", "outside", "own"]
    assert proxy.store.content.quotas[ALICE][FETCH] == 6.0
    assert "consumer_byte_rate = 6" in path.read_text()
    assert "consumer_byte_rate = 8" in path.read_text()


async def test_an_edit_between_reading_and_writing_has_the_question_asked_again(proxy: ProxyFixture, path: Path) -> None:
    """When the file is edited between reading and writing, the alteration is decided again on the new content."""
    asked: list[float] = []

    def raise_by_one(content: StoreContent) -> tuple[float, Sequence[StoreChange]]:
        held = content.quotas[ALICE][FETCH]
        asked.append(held)
        if len(asked) == 1:
            path.write_text(TYPED.replace("= 5", "= 100"))
        return held + 1, [Change(ALICE, FETCH, held + 1)]

    assert await proxy.store.alter(raise_by_one) == 101.0
    assert asked == [5.0, 100.0]
    assert "consumer_byte_rate = 101" in path.read_text()


async def test_a_broken_file_refuses_changes_and_keeps_what_was_good(proxy: ProxyFixture, path: Path) -> None:
    """While the file is invalid, alterations are refused, the file is not touched, and the last quotas stay."""
    path.write_text(TYPED + "[[quo")
    with pytest.raises(StoreUnavailable, match=r"quotas.toml: is not TOML: .*; repair it first, nothing was changed") as caught:
        await proxy.set(ALICE, PRODUCE, 7.0)
    assert caught.value.is_certain
    assert path.read_text() == TYPED + "[[quo"
    assert proxy.store.content.quotas[ALICE][PRODUCE] == 2.0**20
    assert proxy.store.status.error is not None
    path.write_text(TYPED)
    await proxy.set(ALICE, PRODUCE, 7.0)
    assert proxy.store.status.error is None


async def test_a_file_that_others_may_write_is_not_altered(proxy: ProxyFixture, path: Path) -> None:
    """A file that others may write is not altered, and Sluice does not start with it when altering is enabled."""
    path.chmod(0o664)
    with pytest.raises(StoreUnavailable, match=f"run `chmod go-w {path}`, nothing was changed"):
        await proxy.set(ALICE, PRODUCE, 7.0)
    assert path.read_text() == TYPED
    with pytest.raises(ConfigProblems, match="chmod go-w"):
        await ProxyFixture(path, altering=True).store.start()


async def test_a_folder_that_cannot_be_written_is_found_at_the_start(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where quotas may be changed Sluice does not start with a file that it cannot replace; where nobody may change them, it does."""
    monkeypatch.setattr(os, "access", lambda _path, _mode: False)
    with pytest.raises(ConfigProblems, match=f"cannot be replaced, although quotas may be changed: Sluice may not write to {path.parent};"):
        await ProxyFixture(path, altering=True).store.start()
    await ProxyFixture(path).store.start()
    await ProxyFixture(path).store.start()


async def test_what_cannot_be_written_changes_nothing(proxy: ProxyFixture, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write error leaves the file and the quotas unchanged and no temporary file."""

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreUnavailable, match="cannot be written: No space left on device; nothing was changed"):
        await proxy.set(ALICE, PRODUCE, 7.0)
    assert path.read_text() == TYPED
    assert proxy.store.content.quotas[ALICE][PRODUCE] == 2.0**20
    assert sorted(one.name for one in path.parent.iterdir()) == ["quotas.toml", "quotas.toml.lock"]


async def test_the_zookeeper_profile_keeps_zero_and_below(path: Path) -> None:
    """In the ZooKeeper profile values of 0 and below are stored and read."""
    proxy = ProxyFixture(path, any_sign=True)
    await proxy.store.start()
    await proxy.set(ALICE, PRODUCE, 0.0)
    await proxy.set(BOB, PERCENT, -0.5)
    again = ProxyFixture(path, any_sign=True)
    await again.store.start()
    assert again.store.content.quotas == {ALICE: {PRODUCE: 0.0, FETCH: 5.0}, BOB: {PERCENT: -0.5}}
    with pytest.raises(ConfigProblems, match="is not above 0"):
        await ProxyFixture(path).store.start()


async def test_behind_a_symlink_the_file_is_replaced_and_not_the_link(path: Path, tmp_path: Path) -> None:
    """An alteration through a symlink replaces the file and keeps the link."""
    link = tmp_path / "link.toml"
    link.symlink_to("quotas.toml")
    proxy = ProxyFixture(link)
    await proxy.store.start()
    await proxy.set(ALICE, PRODUCE, 7.0)
    assert link.is_symlink()
    assert path.read_text() == TYPED.replace('"1MiB"', "7")


async def test_a_lock_that_stays_held_is_one_line(proxy: ProxyFixture, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An alteration fails with one line when another process keeps the lock."""
    monkeypatch.setattr("proxy.quota_store.file.lock.LOCK_TRIES", 2)
    lock = FileLock(path)
    with pytest.raises(StoreUnavailable, match="another process has locked it; nothing was changed, try again"):
        await proxy.set(ALICE, PRODUCE, 7.0)
    lock.release()
    await proxy.set(ALICE, PRODUCE, 7.0)


async def test_who_asked_may_go(proxy: ProxyFixture, path: Path) -> None:
    """A cancelled alteration is completed."""
    asking = asyncio.ensure_future(proxy.set(ALICE, PRODUCE, 7.0))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await proxy.store.close()
    assert path.read_text() == TYPED.replace('"1MiB"', "7")
    assert proxy.store.content.quotas[ALICE][PRODUCE] == 7.0


COUNTING = """
import asyncio, sys
from pathlib import Path
from proxy.quota_store.file.store import FileStore
from quota.admin.kraft import Change

def one_more(content):
    held = content.quotas[(("user", "alice"),)]["consumer_byte_rate"]
    return None, [Change((("user", "alice"),), "consumer_byte_rate", held + 1)]

async def count():
    store = FileStore(Path(sys.argv[1]), lambda *_: None, now_ms=lambda: 1, wall_time_s=lambda: 1.0)
    await store.start()
    for _ in range(int(sys.argv[2])):
        await store.alter(one_more)

asyncio.run(count())
"""


def test_b11_several_processes_lose_no_update(path: Path) -> None:
    """Three processes that increment one value lose no update."""
    writers = [subprocess.Popen([sys.executable, "-c", COUNTING, str(path), "60"], cwd=ROOT) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    content = read_quota_text(path.read_bytes(), "q")
    assert content.quotas[ALICE] == {PRODUCE: 2.0**20, FETCH: 5.0 + 180}
    assert "# since May" in path.read_text()
