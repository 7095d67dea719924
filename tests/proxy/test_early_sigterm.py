"""SIGTERM that comes while `sluice run` starts ends it as a later one does: exit code 0, and one line says so."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.places import ROOT

ANY_PORT = "127.0.0.1:0"
TERMINATED_BY = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Finder())
from sluice_cli.__main__ import main
main()
"""
"""A Sluice that gets SIGTERM when it begins to import a module."""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("sluice_cli.root", ()),
        ("click", ()),
        ("proxy.config.model", ()),
        ("uvloop", ()),
        ("proxy.workers.start", ("--workers", "2")),
        ("aiohttp", ("--admin", ANY_PORT)),
    ],
)
def test_sigterm_during_an_import_ends_the_start(module: str, arguments: tuple[str, ...]) -> None:
    """From the first import of the program until the event loop runs, SIGTERM ends the process with code 0 and a line."""
    command = ["run", "--listen", ANY_PORT, "--upstream", ANY_PORT.replace(":0", ":1"), *arguments]
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED_BY.format(module=module), *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads(done.stderr)["event"] == "terminated"


def test_another_command_ends_by_the_signal() -> None:
    """A command that is no service ends by SIGTERM, as any program without a handler does."""
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED_BY.format(module="click"), "check-config", "nothing.toml"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGTERM
