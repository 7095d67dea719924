"""Commands write to local paths, and most of them to object stores."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from pipeline.commands.execution.outputs import OutputPath
from sluice_cli.meter import meter, with_writers
from tests.support.metering.metering_scene import Client, write_scene

CAST = [Client("orders", "checkout", "produce", 40_000.0, 9_000, 45, 2)]
INPUTS = {"client_properties", "source", "quotas", "files", "tenants", "prices", "key_file", "directory", "file"}
"""Path options that are inputs; `repair` and `forget` change existing files in them."""
NEEDED = {
    "rollup": ["--in", "in", "--out", "out"],
    "validate": ["--in", "in"],
    "whatif": ["--in", "in", "--quotas", "q.toml"],
    "recommend": ["--in", "in"],
    "neighbours": ["--in", "in"],
    "stream": ["--from", "in", "--checkpoint", "checkpoint", "--out", "out", "--once"],
}
OUTPUTS = [
    ("rollup", "--out"),
    ("validate", "--out"),
    ("validate", "--violations"),
    ("whatif", "--out"),
    ("recommend", "--out"),
    ("recommend", "--report"),
    ("neighbours", "--out"),
    ("stream", "--checkpoint"),
    ("stream", "--out"),
]


def typed(command: str, option: str, value: str) -> Result:
    arguments = list(NEEDED[command])
    if option in arguments:
        at = arguments.index(option)
        del arguments[at : at + 2]
    return CliRunner().invoke(meter, [command, *arguments, option, value])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the input of all commands, as the current directory."""
    write_scene(tmp_path / "in", 3, clients=CAST)
    (tmp_path / "q.toml").write_text('[[quota]]\nuser = "orders"\nproducer_byte_rate = 20000\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("command", "option", "url"), [(*output, url) for output in OUTPUTS for url in ("hdfs:/v", "file:///tmp/v")])
def test_a_url_is_no_place_to_write_to(folder: Path, command: str, option: str, url: str) -> None:
    """A URL without a host, or of this machine, is refused in one line with the option, the remedy and exit code 2, before anything is
    read, started or written. What only Hadoop knows is tested in test_outputs_at_urls.py.
    """
    before = sorted(folder.rglob("*"))
    done = typed(command, option, url)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert f"{option} {url}: " in done.stderr
    assert "write a path of this machine" in done.stderr
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", ["repair s3://b/m", "upload s3://b/m --to s3://b/n", "forget in --user orders --key-file s3://b/m"])
def test_what_reads_files_of_this_machine_takes_no_url(folder: Path, command: str) -> None:
    """A URL where only a path of this machine serves is refused in one line with the remedy and exit code 2."""
    commands = with_writers()
    done = CliRunner().invoke(commands, command.split())
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert done.stderr.startswith("sluice: s3://b/m: is a URL, and ")


@pytest.mark.parametrize("name", ["./a:/b", "a:b"])
def test_a_name_with_a_colon_is_a_name(folder: Path, name: str) -> None:
    """Only a path that begins with a scheme and a slash counts as a URL."""
    done = typed("neighbours", "--out", name)
    assert done.exit_code == 0, done.output
    assert (folder / name / "summary.json").is_file()


def test_every_option_that_writes_is_known() -> None:
    """Every path option of a command is either an input or an output that may not be a URL."""
    commands = with_writers().commands
    paths = [(name, option) for name, command in commands.items() for option in command.params if isinstance(option.type, click.Path)]
    written = [(name, option) for name, option in paths if isinstance(option.type, OutputPath) and isinstance(option, click.Option)]
    outputs = sorted((name, option.opts[0]) for name, option in written)
    assert outputs == sorted(OUTPUTS)
    assert {option.name for _, option in paths if not isinstance(option.type, OutputPath)} <= INPUTS
