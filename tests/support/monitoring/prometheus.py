"""The real Prometheus in another network namespace, and what its API answers."""

import http.client
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from tests.support.monitoring.queries import RULES, Query
from tests.support.processes.logged_process import LoggedProcess
from tests.support.processes.namespaces import FAR_ADDRESS, Wire
from tests.support.tools import require_tool

PORT: Final = 9_090  # no other process is in the namespace
PAGE_SECONDS: Final = 10


class Prometheus(LoggedProcess):
    """Prometheus with the rules of deploy/prometheus; a context manager that is ready inside the block.

    Args:
        wire: it runs in the namespace `far`.
        folder: an empty folder for its configuration and its data.
        scrape_configs: what it scrapes; a target is scraped each second.

    Raises:
        AssertionError: it is not ready in time.
    """

    def __init__(self, wire: Wire, folder: Path, scrape_configs: list[dict[str, Any]]) -> None:
        program = require_tool("prometheus", "prometheus")
        config = folder / "prometheus.yml"
        config.write_text(
            json.dumps(  # JSON is YAML
                {
                    "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(RULES)],
                    "scrape_configs": scrape_configs,
                }
            )
        )
        self._wire = wire
        places = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address={FAR_ADDRESS}:{PORT}"]
        super().__init__(["ip", "netns", "exec", wire.far, program, *places], "prometheus", "Prometheus")

    def ask(self, queries: Iterable[Query]) -> dict[Query, list[dict[str, Any]]]:
        """Return the series that each query selects now: `metric` has the labels, `value` time and number."""
        return self._wire.at_far(lambda: {query: _get("/api/v1/query", {"query": query.text})["result"] for query in queries})

    def series(self, text: str) -> list[dict[str, Any]]:
        """Return the series that one query selects."""
        query = Query("", text)
        return self.ask([query])[query]

    def alerts(self) -> set[str]:
        """Return the names of the alerts that fire."""
        found = self._wire.at_far(lambda: _get("/api/v1/alerts", {}))["alerts"]
        return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}

    def is_ready(self) -> bool:
        """Whether it answers queries."""
        try:
            return self._wire.at_far(lambda: _status("/-/ready")) == 200
        except OSError:
            return False


def has_numbers(series: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a panel with these series shows something: at least one of them is a number."""
    return any(math.isfinite(float(one["value"][1])) for one in series)


def _status(path: str) -> int:
    connection = http.client.HTTPConnection(FAR_ADDRESS, PORT, timeout=PAGE_SECONDS)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


def _get(path: str, arguments: Mapping[str, str]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(FAR_ADDRESS, PORT, timeout=PAGE_SECONDS)
    try:
        connection.request("GET", f"{path}?{urlencode(arguments)}")
        answer = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    assert answer["status"] == "success", (arguments, answer)
    data: dict[str, Any] = answer["data"]
    return data
