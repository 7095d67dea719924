"""Kafka clients for Node: installed into build/ from a lock file on first use, and controlled by scripts (node/script.mjs)."""

import hashlib
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import BUILD, ROOT

NODE_MIN = (20, 19)
INSTALL_SECONDS = 300
PLAY_SECONDS = 180
"""Time limits against hangs."""

_SOURCES = ROOT / "tests/support/node"
_HOME = BUILD / "node"
_lock = threading.Lock()

Step = Mapping[str, Any]


class NodeUnavailableError(Exception):
    """These clients are not available on this machine; the text says what is missing."""


def installed() -> Path:
    """Return the folder of the clients; what is missing is installed first (some seconds, once).

    Raises:
        NodeUnavailableError: Node or npm is missing or too old, or npm failed.
    """
    with _lock:
        _check_node()
        marker, digest = _HOME / ".installed", _digest()
        if not marker.exists() or marker.read_text() != digest:
            shutil.rmtree(_HOME, ignore_errors=True)
            shutil.copytree(_SOURCES, _HOME)
            _run_npm()
            marker.write_text(digest)
    return _HOME


def require_node() -> None:
    """Skip a test that needs these clients where they are not available."""
    try:
        installed()
    except NodeUnavailableError as problem:
        pytest.skip(f"no Kafka client for Node: {problem}")


def play(client: Mapping[str, Any], steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Run a script in a child process; return the result of each step.

    Args:
        client: options of every client: `client_options`.
        steps: see node/script.mjs.

    Raises:
        AssertionError: the script did not end.
    """
    script = json.dumps({"client": client, "steps": list(steps)})
    command = ["node", "script.mjs"]
    done = subprocess.run(command, cwd=installed(), input=script, capture_output=True, text=True, check=False, timeout=PLAY_SECONDS)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.returncode, len(lines)) == (0, len(steps)), done.stderr[-3_000:]
    return lines


def client_options(bootstrap: str, client_id: str, **options: Any) -> dict[str, Any]:
    """Return the options of a client without retries, so that every failure shows."""
    return {"bootstrapBrokers": bootstrap.split(","), "clientId": client_id, "retries": 0, **options}


def login(mechanism: str, username: str, password: str) -> dict[str, Any]:
    """Return the options that log a client in."""
    return {"sasl": {"mechanism": mechanism, "username": username, "password": password}}


def _check_node() -> None:
    missing = [name for name in ("node", "npm") if shutil.which(name) is None]
    if missing:
        raise NodeUnavailableError("missing: " + ", ".join(missing))
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False, timeout=30).stdout
    version = tuple(map(int, re.findall(r"\d+", said)))
    if version[:2] < NODE_MIN:
        raise NodeUnavailableError(f"Node {'.'.join(map(str, NODE_MIN))} or newer is needed, not {said.strip()}")


def _run_npm() -> None:
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved", "--loglevel=error"]
    done = subprocess.run(["npm", "ci", *options], cwd=_HOME, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise NodeUnavailableError(f"npm could not install it:\n{said}")


def _digest() -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))).hexdigest()
