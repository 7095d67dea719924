"""docs/reference names every command of `sluice`, with its options."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sluice_cli.meter import with_writers
from sluice_cli.quotas.command import quotas
from sluice_cli.root import cli
from sluice_cli.top.command import top

REFERENCE = Path(__file__).parents[3] / "docs/reference"
PAGES = {"run": ["configuration"], "top": ["live-page"], "meter": ["pipeline", "roll-ups"]}
"""The pages that describe a command; else it is `commands`."""
LOADED = {"meter": with_writers(), "quotas": quotas, "top": top}
"""Commands that the command line loads when they are called."""


def commands(group: click.Group, names: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield each command below a group with its names."""
    for name, command in group.commands.items():
        loaded = LOADED.get(name, command) if not names else command
        if isinstance(loaded, click.Group):
            yield from commands(loaded, (*names, name))
        else:
            yield (*names, name), loaded


def undocumented(names: tuple[str, ...], command: click.Command, text: str) -> list[str]:
    """Return the last name of the command and the long options that a text does not have."""
    options = [option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts]
    return [word for word in (names[-1], *options) if f"`{word}" not in text and f" {word}" not in text and f"[{word}" not in text]


@pytest.mark.parametrize(("names", "command"), [pytest.param(*found, id="-".join(found[0])) for found in commands(cli)])
def test_every_command_is_documented(names: tuple[str, ...], command: click.Command) -> None:
    """The reference page of a command names it and each of its options."""
    text = "".join((REFERENCE / f"{page}.md").read_text() for page in PAGES.get(names[0], ["commands"]))
    assert undocumented(names, command, text) == []
    assert f"`sluice {names[0]}" in (REFERENCE / "commands.md").read_text()


def test_an_option_without_a_document_is_found() -> None:
    """`undocumented` returns an option that the text does not have."""
    command = click.Command("new", params=[click.Option(["--known"]), click.Option(["--forgotten"])])
    assert undocumented(("new",), command, "| `new` | with `--known` |") == ["--forgotten"]
