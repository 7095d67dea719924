"""`sluice meter forget`: the user's name is removed from all files, and nothing else changes, even after an interruption."""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from pipeline.manifest import find_manifests, problems_of
from proxy.metering import forget
from proxy.metering.commands.forget import forget_command
from proxy.metering.facts.names import Names
from proxy.metering.forget import FORGOTTEN, forget_user
from proxy.metering.retention import Retention, apply_retention
from quota.entity import DEFAULT, sanitize
from tests.support.metering.metering_directory import write_file_set
from tests.support.metering.metering_rows import PROXY_ID, RUN_ID

KEY = {"run_id": RUN_ID, "proxy_id": PROXY_ID}
GROUP = {**KEY, "scope": "broker", "num_samples": 11, "window_ms": 1_000, "first_seen_ms": 0, "quota_type": "Produce"}
ODD_NAMES = ["CN=alice, O=x", "al%ice", "Ålice 愛", 'a"b\\c', "<default>", "__other__", "a,client-id=b", "*", "ANONYMOUS"]


def written(directory: Path, *users: str, names: Names | None = None, first_seq: int = 0) -> Path:
    """Write a file set whose dimensions name the users in groups, in rules, as clients and as authors of changes."""
    keyed = names or Names()
    tables = {
        "dim_group": [{**GROUP, "group_ref": at, "tag_user": keyed(sanitize(user)), "tag_client_id": ""} for at, user in enumerate(users)],
        "dim_bound": [
            {"run_id": RUN_ID, "group_ref": at, "from_seq": 0, "bound": 1.0, "source": "x", "generation": 0, "who": keyed(user)}
            | {"rule": f"user={keyed(user)},client-id=<default>"}
            for at, user in enumerate(users)
        ],
        "dim_client": [
            {
                "run_id": RUN_ID,
                "client_ref": at,
                "principal_type": "User",
                "principal": keyed(user),
                "client_id": "c",
                "name_form": keyed.form,
            }
            for at, user in enumerate(users)
        ],
    }
    write_file_set(directory, tables, first_seq, first_seq - 1, first_seq, first_seq, {}, names=keyed.form, final=True)
    return directory


def rows(directory: Path, table: str) -> list[dict[str, Any]]:
    paths = [directory / entry.path for one in find_manifests(directory) for entry in one.files if entry.table == table]
    return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


def naming(directory: Path, user: str) -> list[Path]:
    """Return the files, listed in a manifest or not, that contain the user's name."""
    needles = {user, sanitize(user)}

    def names(path: Path) -> bool:
        texts = json.dumps(pq.read_table(path, partitioning=None).to_pylist(), ensure_ascii=False)
        return any(json.dumps(needle, ensure_ascii=False)[1:-1] in texts for needle in needles)

    return [path for path in sorted(directory.rglob("*.parquet")) if names(path)]


def forgets(directory: Path, user: str, *options: str) -> Result:
    return CliRunner().invoke(forget_command, [str(directory), "--user", user, *options])


def problems(directory: Path) -> list[str]:
    return [problem for one in find_manifests(directory) for problem in problems_of(directory, one)]


@pytest.mark.parametrize("user", ODD_NAMES)
def test_any_name_goes_and_all_others_stay(tmp_path: Path, user: str) -> None:
    """Any user name is removed from all tables, and similar names stay."""
    others = ["bob", user + "x", user + ", O=y", user[:-1] or "zz"]
    before = [*written(tmp_path, user, *others).rglob("*.parquet")]
    rules = [row["rule"] for row in rows(tmp_path, "dim_bound")]
    done = forgets(tmp_path, user)
    assert (done.exit_code, len(before)) == (0, 3), done.output
    assert [row["principal"] for row in rows(tmp_path, "dim_client")] == [FORGOTTEN, *others]
    assert [row["tag_user"] for row in rows(tmp_path, "dim_group")] == [FORGOTTEN, *map(sanitize, others)]
    assert [row["rule"] for row in rows(tmp_path, "dim_bound")] == [
        f"user={FORGOTTEN},client-id=<default>" if user != DEFAULT else rules[0],
        *rules[1:],
    ]
    assert problems(tmp_path) == []


def test_who_breaks_off_between_manifest_and_old_files_leaves_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old files that an interrupted call left are removed by the next call."""
    written(tmp_path, "alice", "bob")
    monkeypatch.setattr(forget, "remove", _die)
    with pytest.raises(KeyboardInterrupt):
        forget_user(tmp_path, "alice")
    monkeypatch.undo()
    assert naming(tmp_path, "alice"), "this is what is left behind"
    assert forgets(tmp_path, "alice").exit_code == 0
    assert naming(tmp_path, "alice") == []
    assert len(naming(tmp_path, "bob")) == 3
    assert problems(tmp_path) == []


@pytest.mark.parametrize("puts", range(4))
def test_who_breaks_off_anywhere_can_begin_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, puts: int) -> None:
    """After an interruption at any file the directory is valid, and the next call completes the work."""
    written(tmp_path, "alice", "bob")
    left, put = [None] * puts, forget.put

    def put_some(path: Path, temporary: Path) -> None:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        put(path, temporary)

    monkeypatch.setattr(forget, "put", put_some)
    with pytest.raises(KeyboardInterrupt):
        forget_user(tmp_path, "alice")
    monkeypatch.undo()
    assert problems(tmp_path) == []
    assert forgets(tmp_path, "alice").exit_code == 0
    assert (naming(tmp_path, "alice"), problems(tmp_path)) == ([], [])


def _die(*_paths: Path) -> None:
    raise KeyboardInterrupt


def forget_alice_while(does: Callable[[], object], directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget alice while another thread does something that begins in the middle of it."""
    other, write = threading.Thread(target=does), forget.write_parquet

    def write_meanwhile(*arguments: Any, **options: Any) -> None:
        if other.ident is None:
            other.start()
            other.join(0.3)
        write(*arguments, **options)

    monkeypatch.setattr(forget, "write_parquet", write_meanwhile)
    forget_user(directory, "alice")
    other.join()


def test_two_at_once_forget_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two concurrent calls for two users remove both names."""
    written(tmp_path, "alice", "bob")
    forget_alice_while(lambda: forget_user(tmp_path, "bob"), tmp_path, monkeypatch)
    assert (naming(tmp_path, "alice"), naming(tmp_path, "bob"), problems(tmp_path)) == ([], [], [])


def test_what_retention_removes_meanwhile_stays_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file set that retention removes during the call does not return."""
    written(written(tmp_path, "alice"), "alice", first_seq=10)
    limits = Retention(age_ms_max=1, now_ms=6)
    forget_alice_while(lambda: apply_retention(tmp_path, PROXY_ID, limits), tmp_path, monkeypatch)
    assert ([one.first_seq for one in find_manifests(tmp_path)], problems(tmp_path)) == ([10], [])
    assert len([*tmp_path.rglob("*.parquet")]) == 3


def test_the_empty_name_cannot_be_forgotten(tmp_path: Path) -> None:
    """The empty user name is refused with one line."""
    done = forgets(written(tmp_path, "alice"), "")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert rows(tmp_path, "dim_group")[0]["tag_user"] == "alice"


def test_keyed_names_need_their_key(tmp_path: Path) -> None:
    """For keyed names the command requires the key, and works with it."""
    names = Names("keyed", b"k" * 16)
    (tmp_path / "key").write_bytes(b"k" * 16)
    done = forgets(written(tmp_path, "alice", names=names), "alice")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "--key-file" in done.stderr
    assert forgets(tmp_path, "alice", "--key-file", str(tmp_path / "key")).exit_code == 0
    assert rows(tmp_path, "dim_client")[0]["principal"] == FORGOTTEN


def test_a_callbacks_tags_are_names_too(tmp_path: Path) -> None:
    """A user's name in a callback's tags is removed, and the name of a declared group stays."""
    tags = {"owner": "alice", "team": "x"}
    groups = [{**GROUP, "group_ref": 0, "tags": json.dumps(tags)}, {**GROUP, "group_ref": 1, "tags": '{"declared-group":"alice"}'}]
    write_file_set(tmp_path, {"dim_group": groups}, 0, -1, 0, 0, {}, final=True)
    assert forgets(tmp_path, "alice").exit_code == 0
    assert [json.loads(row["tags"]) for row in rows(tmp_path, "dim_group")] == [tags | {"owner": FORGOTTEN}, {"declared-group": "alice"}]


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda manifest: manifest.pop(key)


@pytest.mark.parametrize(
    "spoil",
    [
        without("files"),
        lambda manifest: manifest.update(files=7),
        lambda manifest: manifest.update(files=[{"table": "dim_group"}]),
        lambda manifest: manifest["files"][0].update(path="../../elsewhere.parquet"),
        lambda manifest: manifest["files"][0].update(path="dim_group/none.parquet"),
    ],
)
def test_a_manifest_that_is_none_is_one_line(tmp_path: Path, spoil: Callable[[dict[str, Any]], object]) -> None:
    """An invalid manifest gives one line and exit code 2."""
    (path,) = (written(tmp_path, "alice") / "manifests").rglob("*.json")
    manifest = json.loads(path.read_text())
    spoil(manifest)
    path.write_text(json.dumps(manifest))
    done = forgets(tmp_path, "alice")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output


@pytest.mark.parametrize(("spoil", "message"), [(Path.unlink, "is missing"), (lambda path: path.write_text("[" * 100_000), "not a")])
def test_what_is_not_there_is_said(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    """A missing or unreadable file gives one line that names what is wrong, and exit code 2."""
    for path in [*written(tmp_path, "alice").rglob("*.parquet"), *(tmp_path / "manifests").rglob("*.json")]:
        if (path.suffix == ".parquet") == (spoil is Path.unlink):
            spoil(path)
    done = forgets(tmp_path, "alice")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert message in done.stderr


def test_bytes_that_are_not_text_are_no_user(tmp_path: Path) -> None:
    """A user name that is not valid text gives one line and exit code 2."""
    done = forgets(written(tmp_path, "alice"), os.fsdecode(b"al\xff"))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
