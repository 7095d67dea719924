"""HAProxy with lines of the documents, in front of proxies on this machine."""

import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.support.places import ROOT
from tests.support.ports import BROKER_PORTS
from tests.support.processes.logged_process import LoggedProcess
from tests.support.tools import require_tool

TIMES: Final = "defaults\n    timeout connect 5s\n    timeout client 60s\n    timeout server 60s\n"
"""Without them HAProxy warns, and waits without end."""


def documented_lines(document: str) -> str:
    """Return the lines for HAProxy of a document."""
    (lines,) = re.findall(r"^```\n(listen .*?)^```", (ROOT / document).read_text(), re.DOTALL | re.MULTILINE)
    return str(lines)


class HaProxy(LoggedProcess):
    """HAProxy that forwards the ports of a gateway; a context manager that is ready inside the block.

    Args:
        lines: its configuration, for port 9092 and brokers at 9200 to 9209.
        folder: an empty folder for the configuration.
        address: where it listens.
        port: the bootstrap port in place of 9092; the next ones are those of the brokers.
        servers: the addresses of the gateways by those in `lines`.
        source: the address of its connections to them.

    Raises:
        AssertionError: it is not ready in time.
    """

    def __init__(self, lines: str, folder: Path, address: str, port: int, servers: Mapping[str, str], source: str) -> None:
        program = require_tool("haproxy", "haproxy")
        lines = lines.replace("bind :9092", f"bind {address}:{port}").replace(":9092", f":{port}")
        lines = lines.replace("bind :9200-9209", f"bind {address}:{port + 1}-{port + BROKER_PORTS}")
        for written, used in servers.items():
            lines = lines.replace(written, used)
        config = folder / "haproxy.cfg"
        config.write_text(f"{TIMES}    source {source}\n\n{lines}")
        self._where = address, port
        super().__init__([program, "-db", "-f", str(config)], "haproxy", "HAProxy")

    def is_ready(self) -> bool:
        """Whether it accepts connections."""
        try:
            socket.create_connection(self._where, timeout=1).close()
        except OSError:
            return False
        return True
