"""Runs the command blocks of a document as a reader would type them, and compares the output."""

import doctest
import os
import re
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
READMES = [ROOT / folder / "README.md" for folder in ("bench", "bench/results", "tests/vectors")]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *READMES])
"""Documents for users and developers."""
BLOCK = re.compile(r"<!-- (?:(?P<run>run)|file: (?P<file>[\w./-]+)) -->\n```\w*\n(?P<text>.*?)\n```", re.DOTALL)
END = "===== end of command"
TIMEOUT_S = 120
"""A time limit against hangs."""


class Command(NamedTuple):
    """One command of a document and the output that the document shows."""

    line: str
    expected: str


class Difference(NamedTuple):
    """A command whose output differs from its document."""

    command: str
    expected: str
    printed: str


def read(document: str) -> tuple[dict[str, str], list[Command]]:
    """Return the files that a document shows, by name, and its commands that are marked as run."""
    files: dict[str, str] = {}
    commands: list[Command] = []
    for block in BLOCK.finditer(document):
        if block["file"]:
            files[block["file"]] = block["text"] + "\n"
            continue
        for part in re.split(r"^\$ ", block["text"], flags=re.MULTILINE)[1:]:
            line, _, expected = part.partition("\n")
            commands.append(Command(line, expected.strip()))
    return files, commands


def run(document: str, folder: Path, environment: Mapping[str, str]) -> list[Difference]:
    """Run the commands of a document in `folder` in sequence in one shell, and return the differences.

    Processes that the commands leave in the background are ended afterwards.
    """
    files, commands = read(document)
    for name, text in files.items():
        (folder / name).write_text(text)
    script = folder / ".commands.sh"
    lines = "".join(f"{command.line}\necho '{END}'\n" for command in commands)
    script.write_text(f"{lines}kill $(jobs -p) 2>/dev/null\nwait\n")
    shell = subprocess.Popen(
        ["bash", script.name],
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = shell.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        printed, _ = shell.communicate()
    return differences(commands, printed)


def differences(commands: list[Command], printed: str) -> list[Difference]:
    """Compare the printed output, command by command, with the document."""
    outputs = printed.split(END + "\n")
    found = []
    for number, command in enumerate(commands):
        output = outputs[number].strip() if number < len(outputs) - 1 else "(the command did not end)"
        if not doctest.OutputChecker().check_output(command.expected + "\n", output + "\n", doctest.ELLIPSIS):
            found.append(Difference(command.line, command.expected, output))
    return found
