"""The Sluice of a manifest as a process: its configuration and files as in a pod, but ports and brokers of this machine."""

import http.client
import json
import re
import ssl
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes.manifests import objects
from tests.support.kubernetes.pod_files import PodFiles
from tests.support.ports import free_bootstrap_port, free_port
from tests.support.processes.logged_process import LoggedProcess

HOST: Final = "127.0.0.1"


class RunningPod(LoggedProcess):
    """`sluice run` with the configuration of a manifest; a context manager that is ready inside the block.

    Attributes:
        files: what it reads.
        port: the bootstrap port, known before the start.

    Args:
        manifest: with a Sluice.
        root: an empty folder that stands for the root of the container.
        upstream: address of a broker on this machine.
    """

    def __init__(self, manifest: Path, root: Path, upstream: str) -> None:
        self.files = PodFiles(objects(manifest), root, HOST)
        self._admin_port, self.port = free_port(), free_bootstrap_port()
        bus = root / "bus"
        bus.mkdir(mode=0o700)
        here = (
            (r"(?m)^bootstrap = .*$", f'bootstrap = ["{upstream}"]'),
            (r'"0\.0\.0\.0:9644"', f'"{HOST}:{self._admin_port}"'),
            (r'"0\.0\.0\.0:9092"', f'"{HOST}:{self.port}"'),
            (r"(?m)^first_broker_port = .*$", f"first_broker_port = {self.port + 1}"),
            (r"(?m)^\[fleet\]$", f'[fleet]\ndirectory = "{bus}"'),
        )
        text = self.files.config.read_text()
        for pattern, instead in here:
            text = re.sub(pattern, instead, text)
        self.files.volumes["config"].swap({self.files.config.name: text})
        self._root = root
        super().__init__([sys.executable, "-m", "sluice_cli", "run", "--config", str(self.files.config)], "sluice-pod", "Sluice")

    def is_ready(self) -> bool:
        """Whether it serves clients."""
        return self.get("/readyz")[0] == 200

    def get(self, path: str) -> tuple[int, Any]:
        """Return the status and the JSON of a page, asked with the token of Prometheus; (0, None) without an answer."""
        etc = self._root / "etc"
        trust = ssl.create_default_context(cafile=etc / "sluice-admin/ca.crt")
        connection = http.client.HTTPSConnection(HOST, self._admin_port, timeout=5, context=trust)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {(etc / 'sluice-admin-token/token').read_text()}"})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        except OSError:
            return 0, None
        finally:
            connection.close()
