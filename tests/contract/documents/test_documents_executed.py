"""The commands of the documents are executed: a block that is marked as run shows exactly what its commands print."""

import os
import re
import sys
from pathlib import Path

import click
import pytest

from sluice_cli.meter import meter, with_writers
from sluice_cli.quotas.command import quotas
from sluice_cli.root import cli
from sluice_cli.top.command import top
from tests.support.documents import DOCUMENTS, ROOT, Command, differences, read, run
from tests.support.ports import free_bootstrap_port, free_port

EXECUTED = [path for path in DOCUMENTS if "<!-- run -->" in path.read_text() and path.parent.name != "docs"]


@pytest.mark.mock
@pytest.mark.parametrize("path", EXECUTED, ids=lambda path: path.stem)
def test_commands_print_what_the_document_shows(path: Path, tmp_path: Path) -> None:
    """Each command of a marked block prints the output below it; `...` stands for output that varies."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "LISTEN": f"127.0.0.1:{free_bootstrap_port()}",
        "ADMIN": f"127.0.0.1:{free_port()}",
    }
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert run(path.read_text(), tmp_path, environment) == []


def test_some_documents_are_executed() -> None:
    """The README, the tutorial and the metering walk-through have blocks that are marked as run."""
    assert {path.name for path in EXECUTED} >= {"README.md", "first-quota.md", "metering.md", "administration.md"}


def test_a_document_that_contradicts_is_found(tmp_path: Path) -> None:
    """The runner reports the command, the output in the document and the output that was printed."""
    document = (
        "<!-- file: a.txt -->\n```\none\n```\n<!-- run -->\n```console\n$ cat a.txt\none\n$ cat a.txt\ntwo\n$ echo 1 2 3\n1 ... 3\n```\n"
    )
    assert read(document)[1] == [Command("cat a.txt", "one"), Command("cat a.txt", "two"), Command("echo 1 2 3", "1 ... 3")]
    (found,) = run(document, tmp_path, {})
    assert (found.command, found.expected, found.printed) == ("cat a.txt", "two", "one")


def test_a_command_that_does_not_end_is_found() -> None:
    """`differences` returns a command that does not end."""
    found = differences([Command("true", ""), Command("sleep infinity", "")], "===== end of command\n")
    assert [one.command for one in found] == ["sleep infinity"]


def command_lines(text: str) -> list[list[str]]:
    """Return the words of each `sluice` command in the code blocks of a document; continuation lines are joined."""
    found = []
    for block in re.findall(r"^```(?:console|bash|sh)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            match = re.match(r"(?:\$ )?sluice ([a-z].*)", line)
            if match:
                found.append(re.split(r"\s[|>&#]|\s2>", match[1])[0].split())
    return found


def unknown(words: list[str]) -> list[str]:
    """Return the options that the command does not have, or the command itself if it does not exist."""
    command: click.Command = cli
    groups = {"meter": with_writers(), "quotas": quotas, "top": top}
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        if "|" in name:  # a synopsis of several commands
            return [one for one in name.split("|") if one not in meter.commands]
        following = groups.get(name) if command is cli and name in groups else command.commands.get(name)
        if following is None:
            return [name]
        command = following
    options = {option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts}
    used = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return sorted(used - options - {"--help", "-h", "--version"})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_commands_of_documents_exist(path: Path) -> None:
    """Every `sluice` command and option in a code block of a document exists."""
    assert [(words, wrong) for words in command_lines(path.read_text()) if (wrong := unknown(words))] == []


def test_an_option_that_is_not_there_is_found() -> None:
    """`unknown` returns an option that does not exist."""
    assert unknown(["quotas", "set", "--client-id", "etl", "--no-such-option", "x"]) == ["--no-such-option"]
    assert unknown(["no-such-command"]) == ["no-such-command"]


def test_readme_and_changelog_are_short() -> None:
    """The README has at most 150 lines, the CHANGELOG at most 60."""
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
    assert len((ROOT / "CHANGELOG.md").read_text().splitlines()) <= 60
