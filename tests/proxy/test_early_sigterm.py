"""SIGTERM that comes while `sluice run` starts ends it as a later one does: exit code 0, and one line says so."""

import json
import signal
import subprocess
import sys

import pytest

from tests.support.places import ROOT
from tests.support.ports import free_bootstrap_port, free_port

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
        ("aiohttp", ("--admin", "127.0.0.1:0")),
    ],
)
def test_sigterm_during_an_import_ends_the_start(module: str, arguments: tuple[str, ...]) -> None:
    """From the first import of the program until the event loop runs, SIGTERM ends the process with code 0 and a line."""
    port, admin = free_bootstrap_port(), f"127.0.0.1:{free_port()}"
    command = ["run", "--listen", f"127.0.0.1:{port}", "--upstream", f"127.0.0.1:{free_port()}"]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            TERMINATED_BY.format(module=module),
            *command,
            *(admin if word.endswith(":0") else word for word in arguments),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
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
