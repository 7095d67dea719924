"""Commands of `sluice meter` on Spark that write to URLs which only Hadoop knows, or compare and change the files there."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from metering_format.places import LEDGER_KIND, REMOVED, ledger_name
from pipeline.manifest import find_manifests
from pipeline.spark import session
from pipeline.validation.local import validate
from sluice_cli.meter import with_writers
from tests.pipeline.support.first_hour import CAST
from tests.support.metering.metering_scene import write_scene

Typed = Callable[..., Result]
ON_SPARK = ("--engine", "spark")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a metering directory of six file sets, and a quota file beside it."""
    write_scene(tmp_path / "in", 60, clients=CAST, file_set_s=10)
    (tmp_path / "quotas.toml").write_text('[[quota]]\nuser = "orders"\nproducer_byte_rate = 20000\n')
    return tmp_path


def files_below(place: Path) -> dict[str, bytes]:
    """Return the content of each file below a folder, by its path."""
    return {str(path.relative_to(place)): path.read_bytes() for path in sorted(place.rglob("*")) if path.is_file()}


WRITING: Sequence[tuple[str, ...]] = [
    ("validate", "--in", "PLACE/in", "--out", "PLACE/OUT"),
    ("whatif", "--in", "PLACE/in", "--quotas", "PLACE/quotas.toml", "--out", "PLACE/OUT"),
    ("recommend", "--in", "PLACE/in", "--out", "PLACE/OUT/proposal.toml", "--report", "PLACE/OUT/report"),
    ("neighbours", "--in", "PLACE/in", "--out", "PLACE/OUT/deeper"),
]


@pytest.mark.parametrize("words", WRITING, ids=[words[0] for words in WRITING])
def test_a_report_at_a_url_is_that_of_a_path(typed: Typed, lake: str, folder: Path, words: Sequence[str]) -> None:
    """Hadoop writes the files that the local engine writes to a folder, and nothing else."""
    places = ((str(folder), "here", ()), (lake, "there", ON_SPARK))
    for place, out, engine in places:
        done = typed(*(word.replace("PLACE", place).replace("OUT", out) for word in words), *engine)
        assert done.exit_code == 0, done.output
    here, there = (files_below(folder / out) for _, out, _ in places)
    assert {path: content.replace(lake.encode(), bytes(folder)) for path, content in there.items() if not path.endswith(".crc")} == here
    assert here


@pytest.mark.parametrize("words", WRITING, ids=[words[0] for words in WRITING])
def test_an_output_that_only_hadoop_knows_needs_spark(typed: Typed, folder: Path, words: Sequence[str]) -> None:
    """The local engine refuses it in one line, before anything is read or written."""
    before = files_below(folder)
    done = typed(*(word.replace("PLACE/OUT", "hdfs://host/out").replace("PLACE", str(folder)) for word in words))
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert ": is a URL of no object store, so only Hadoop can know it; add --engine spark" in done.stderr
    assert files_below(folder) == before


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x5A
    path.write_bytes(data)


def directory_of(path: Path) -> Path:
    """Return the metering directory of a file."""
    return next(parent for parent in path.parents if parent.name == "in")


def lose_table(path: Path) -> None:
    """Remove all files of the table."""
    shutil.rmtree(next(parent for parent in path.parents if parent.parent.name == "in"))


def lose_manifest(path: Path) -> None:
    """Remove the manifest of a file set in the middle, so that the chain is broken."""
    sorted((directory_of(path) / "manifests").rglob("*.json"))[2].unlink()


def retain(path: Path) -> None:
    """Remove the first file set, and say so in the ledger of removed ones."""
    directory = directory_of(path)
    first = find_manifests(directory)[0]
    ledger = {"kind": LEDGER_KIND, "proxy_id": first.proxy_id, "runs": [{"run_id": first.run_id, "last_seq": first.last_seq}]}
    (directory / REMOVED).mkdir()
    (directory / REMOVED / ledger_name(first.proxy_id)).write_text(json.dumps(ledger))
    min((directory / "manifests").rglob("*.json")).unlink()


DAMAGES: Sequence[Callable[[Path], object]] = (Path.touch, Path.unlink, cut, change, lose_table, lose_manifest, retain)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_files_are_compared_with_manifests_on_spark(typed: Typed, lake: str, folder: Path, damage: Callable[[Path], object]) -> None:
    """On Spark `verify-manifests` prints what it prints without, for the path and for its URL: missing, cut and changed files, and file
    sets that are in no manifest.
    """
    damage(sorted((folder / "in" / "usage").rglob("*.parquet"))[3])
    for more in ((), ("--explain",), ("--format", "json")):
        here = typed("verify-manifests", folder / "in", *more)
        assert here.exit_code == (0 if damage in {Path.touch, retain} else 3), here.output
        for place in (folder / "in", f"{lake}/in"):
            there = typed("verify-manifests", place, *more, *ON_SPARK)
            assert (there.exit_code, there.stdout.replace(lake, str(folder))) == (here.exit_code, here.stdout), there.output


def test_a_file_at_a_url_is_inspected(typed: Typed, lake: str, folder: Path) -> None:
    """`inspect` prints a manifest and a Parquet file at a URL as it prints the same file of this machine."""
    for path in (min((folder / "in").rglob("*.json")), min((folder / "in" / "usage").rglob("*.parquet"))):
        here, there = typed("inspect", path), typed("inspect", f"{lake}/{path.relative_to(folder)}", *ON_SPARK)
        assert (there.exit_code, there.stdout) == (here.exit_code, here.stdout) == (0, here.stdout), there.output
    missing = typed("inspect", f"{lake}/in/nothing.parquet", *ON_SPARK)
    assert (missing.exit_code, missing.stderr.count("\n")) == (2, 1), missing.output
    assert f"{lake}/in/nothing.parquet: no such file" in missing.stderr


def changed(*arguments: object) -> Result:
    """Run a command that changes files. `typed` lets it use the session of the tests."""
    return CliRunner().invoke(with_writers(), [str(argument) for argument in arguments])


@pytest.mark.parametrize("words", [("compact",), ("forget", "--user", "orders")], ids=lambda words: words[0])
def test_file_sets_at_a_url_are_changed(typed: Typed, lake: str, folder: Path, words: Sequence[str]) -> None:
    """`compact` and `forget` at a URL print what they print for a directory, and leave the same decisions, verdict and names."""
    shutil.copytree(folder / "in", folder / "copy")
    command, *options = words
    here, there = changed(command, folder / "copy", *options), changed(command, f"{lake}/in", *options, *ON_SPARK)
    assert there.exit_code == here.exit_code == 0, there.output
    if command == "forget":
        assert there.stdout == here.stdout
    for place in ("in", "copy"):
        manifests = find_manifests(folder / place)
        contents = files_below(folder / place)
        assert len(manifests) == (6 if command == "forget" else 1)
        assert any(b"orders" in content for content in contents.values()) is (command == "compact")
        assert not any(".new" in path for path in contents)
    one, other = (validate(folder / place, every_byte=True).as_dict(50) for place in ("in", "copy"))
    for verdict in (one, other):
        verdict.pop("manifests")
    assert one == other
    assert one["decisions"]


@pytest.mark.parametrize("words", [("compact",), ("forget", "--user", "orders")], ids=lambda words: words[0])
def test_a_url_without_file_sets_is_refused(typed: Typed, lake: str, tmp_path: Path, words: Sequence[str]) -> None:
    """With Spark a URL without manifests, and without Spark any URL that only Hadoop knows, is one line with exit code 2."""
    command, *options = words
    nothing = changed(command, f"{lake}/elsewhere", *options, *ON_SPARK)
    assert (nothing.exit_code, nothing.stderr.count("\n")) == (2, 1), nothing.output
    assert f"{lake}/elsewhere: not a metering directory" in nothing.stderr
    local = changed(command, "hdfs://host/metering", *options)
    assert (local.exit_code, local.stderr.count("\n")) == (2, 1), local.output
    assert "hdfs://host/metering: is a URL of no object store, so only Hadoop can know it; add --engine spark" in local.stderr


def test_a_block_inside_another_one_has_its_session(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of an inner block of `session` does not stop Spark; that of the outer one does."""
    stops: list[int] = []
    monkeypatch.setattr(type(spark), "stop", lambda _: stops.append(len(stops)))
    monkeypatch.setattr(session, "_OPEN", [])  # the session of the tests is such a block
    with session.session() as outer:
        with session.session() as inner:
            assert inner is outer
        assert stops == []
        assert outer.range(3).count() == 3
    assert stops == [0]
