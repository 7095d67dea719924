"""A ZooKeeper on a free loopback port that can be stopped, frozen and restarted with its data."""

import os
import shutil
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.kafka import settings as files
from tests.support.kafka.jars import ZOOKEEPER
from tests.support.kafka.java_process import JavaProcess, Jvm
from tests.support.patience import stop_process
from tests.support.places import make_directory
from tests.support.ports import free_port_range

START_SECONDS = 60
"""A time limit against hangs: a start takes half a second on an idle machine."""


class ZookeeperServer:
    """A context manager; its data is removed at the end.

    Args:
        secure: TLS at `secure_port` with this certificate (PEM, key in the same file) and an authority for client certificates.
        users: SASL users with their passwords; with users no other client gets a session.
    """

    def __init__(self, name: str = "zookeeper", *, secure: tuple[Path, Path] | None = None, users: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._directory = make_directory(name)
        self.port = free_port_range(1)
        self.secure_port = free_port_range(1)
        self._config = self._directory / "zookeeper.properties"
        self._properties: tuple[str, ...] = ("zookeeper.4lw.commands.whitelist=ruok",)
        settings = files.zookeeper_settings(self.port, self._directory) | {"minSessionTimeout": 1_000}
        if secure is not None:
            settings |= files.secure_zookeeper_settings(self.secure_port, *secure)
        if users is not None:
            jaas = self._directory / "jaas.conf"
            jaas.write_text(files.zookeeper_users(users))
            self._properties += (f"java.security.auth.login.config={jaas}",)
            settings |= files.SASL_ZOOKEEPER
        files.write_properties(self._config, settings)
        self._process: JavaProcess | None = None

    @property
    def address(self) -> str:
        """Return host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def secure_address(self) -> str:
        """Return host:port of its TLS listener."""
        return f"127.0.0.1:{self.secure_port}"

    def start(self) -> None:
        """Start, and wait until it answers."""
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._config)]
        self._process = JavaProcess(ZOOKEEPER, main, name=self._name, jvm=Jvm(128), properties=self._properties)
        deadline = time.monotonic() + START_SECONDS
        while not self._serves():
            assert self._process.is_running(), self._process.log_tail()
            assert time.monotonic() < deadline, self._process.log_tail()
            time.sleep(0.05)

    def kill(self) -> None:
        """Send SIGKILL; the data stays."""
        if self._process is not None:
            self._process.kill()

    def freeze(self) -> None:
        """Stop the process: it accepts connections and does not answer."""
        assert self._process is not None
        stop_process(self._process.pid)

    def thaw(self) -> None:
        """Continue the process."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(b"ruok")
                return connection.recv(4) == b"imok"
        except OSError:
            return False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None and self._process.is_running():
            self.thaw()
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
