"""`sluice meter` as it is typed: exit codes and output, of a child process where more than one command is concerned."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.files import write_whole
from sluice_cli.meter import meter
from tests.pipeline.support.spark_jvm import quick_jvm
from tests.support.metering.metering_scene import Client, write_scene
from tests.support.tools import in_ci, missing_to_run

CAST = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2)]
COMMANDS = ["rollup", "validate", "whatif", "recommend", "neighbours", "stream", "inspect", "repair", "verify-manifests"]


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sluice_cli", "meter", *arguments], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("nonsense",),
        ("whatif", "--in", "absent"),
        ("whatif", "--in", "absent", "--quotas", "absent.toml"),
        ("rollup", "--in", "absent", "--out", "out", "--format", "xml"),
        ("recommend", "--in", "absent", "--percentile", "0"),
        ("validate", "--in", "hdfs://absent", "--engine", "spark", "--master", "nonsense"),
    ],
)
def test_whatever_is_wrong_with_what_was_typed_is_one_line(arguments: tuple[str, ...]) -> None:
    """A missing option, an unknown command or a missing file gives exit code 2, one line on stderr and nothing on stdout."""
    done = typed(*arguments)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("sluice: ")


def test_help_names_every_command() -> None:
    """`sluice meter --help` lists every command on stdout and ends with exit code 0."""
    done = typed("--help")
    assert done.returncode == 0
    assert [command for command in COMMANDS if command not in done.stdout] == []


def rejected(*arguments: str) -> str:
    """Return the error line of a command that must end with exit code 2."""
    done = CliRunner().invoke(meter, arguments)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three minutes, which no test changes."""
    return write_scene(tmp_path_factory.mktemp("scene") / "in", 3, clients=CAST)


def test_verbose_lets_sparks_log_through(scene: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With -v Spark's log goes to stderr, and stdout is unchanged."""
    missing = missing_to_run()
    if missing and not in_ci():
        pytest.skip(f"Spark cannot run here: missing {', '.join(missing)}")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", quick_jvm())
    here, verbose = (typed("validate", "--in", str(scene), *more) for more in ((), ("--engine", "spark", "-v")))
    assert (verbose.returncode, verbose.stdout) == (0, here.stdout), verbose.stderr
    assert "Spark's default log4j profile" in verbose.stderr


@pytest.mark.parametrize("command", ["validate", "whatif", "recommend", "neighbours", "verify-manifests", "rollup"])
def test_what_cannot_be_read_is_one_line(tmp_path: Path, scene: Path, command: str) -> None:
    """A manifest without read permission is named in one line, with exit code 2 rather than 1, the code of a violation."""
    source = shutil.copytree(scene, tmp_path / "in")
    (tmp_path / "q.toml").write_text("")
    manifest = next((source / "manifests").rglob("*.json"))
    manifest.unlink()
    manifest.mkdir()  # a file that root cannot read either
    place = [str(source)] if command == "verify-manifests" else ["--in", str(source)]
    options = {"whatif": ["--quotas", str(tmp_path / "q.toml")], "rollup": ["--out", str(tmp_path / "out")]}
    assert f"{manifest}: Is a directory" in rejected(command, *place, *options.get(command, []))


@pytest.mark.parametrize("command", ["validate", "whatif", "recommend", "neighbours", "rollup"])
def test_what_cannot_be_written_is_one_line(tmp_path: Path, scene: Path, command: str) -> None:
    """An output directory that cannot be created is named in one line, with exit code 2."""
    (tmp_path / "q.toml").write_text("")
    (tmp_path / "a-file").write_text("mine")
    options = {"whatif": ["--quotas", str(tmp_path / "q.toml")]}
    out = "--report" if command == "recommend" else "--out"
    assert "a-file" in rejected(command, "--in", str(scene), *options.get(command, []), out, str(tmp_path / "a-file" / "out"))
    assert (tmp_path / "a-file").read_text() == "mine"


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    """An output path that is a directory, a pipe or a device stays unchanged, and no temporary file is left."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match=name):
            write_whole(tmp_path / name, "text")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_what_needs_no_spark_does_not_load_it(tmp_path: Path) -> None:
    """Every command that needs no Spark runs without importing PySpark."""
    source = str(write_scene(tmp_path / "in", 3, clients=CAST))
    (tmp_path / "q.toml").write_text("")
    manifest = next((tmp_path / "in" / "manifests").rglob("*.json"))
    commands = [
        ["validate", "--in", source, "--out", str(tmp_path / "out")],
        ["whatif", "--in", source, "--quotas", str(tmp_path / "q.toml")],
        ["recommend", "--in", source],
        ["neighbours", "--in", source],
        ["verify-manifests", source],
        ["inspect", str(manifest)],
    ]
    program = (
        "import sys\nfrom click.testing import CliRunner\nfrom sluice_cli.meter import meter\n"
        f"print([CliRunner().invoke(meter, command).exit_code for command in {commands!r}])\n"
        "print([name for name in ('pyspark', 'py4j') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == [str([0] * len(commands)), "[]"]
