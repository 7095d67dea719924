"""Notifications to the service manager."""

import socket
from pathlib import Path

import pytest

from proxy.base.service_manager import VARIABLE, notify


def test_a_service_manager_hears_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notification arrives at the socket that the environment names, by path or by abstract name."""
    for address in (str(tmp_path / "notify"), f"@{tmp_path}/notify"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address.replace("@", "\0"))
            monkeypatch.setenv(VARIABLE, address)
            notify("READY=1")
            assert manager.recv(100) == b"READY=1"


def test_without_a_service_manager_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a service manager, or with one that does not listen, a notification does nothing."""
    monkeypatch.delenv(VARIABLE, raising=False)
    notify("READY=1")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nobody"))
    notify("READY=1")
