"""The admin port of a whole process, queried from another network namespace as from another machine."""

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.patience import until_true
from tests.support.places import ROOT, log_file
from tests.support.processes.namespaces import NEAR_ADDRESS, NoNamespacesError, Wire

PORT = 9_644  # no other process is in the namespace
PAGE = "/"
"""The live page: its files are open and hold no data."""
CLOSED = (
    *("/ui/events", "/ui/group", "/quotas", "/connections", "/admin/quotas", "/admin/switches", "/admin/history", "/admin/history/verify"),
    *("/explain?user=bob", "/nothing"),
)
CHANGES = {
    "/admin/quotas": {"entries": [{"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 5_000}}]},
    "/admin/switches": {"target": "all", "mode": "off"},
}
FORBIDDEN = 403


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Yield two connected network namespaces."""
    try:
        made = Wire()
    except NoNamespacesError as problem:
        pytest.skip(str(problem))
    with made:
        yield made


def status(wire: Wire, path: str, body: object = None, *, here: bool = False) -> int:
    """Return the status code that the admin port gives to the other machine or to its own, or 0 without an answer."""

    def ask() -> int:
        connection = http.client.HTTPConnection("127.0.0.1" if here else NEAR_ADDRESS, PORT, timeout=5)
        try:
            sent = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, sent, {"Content-Type": "application/json"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    return wire.at_near(ask) if here else wire.at_far(ask)


def test_without_tokens_and_tls_others_see_metrics_and_health_alone(wire: Wire) -> None:
    """Another machine gets 403 for all but metrics, health and files of the live page; the same machine reads all and changes nothing."""
    sluice = [
        sys.executable,
        "-m",
        "sluice_cli",
        "run",
        "--listen",
        "127.0.0.1:9092",
        "--upstream",
        "127.0.0.1:1",
        "--admin",
        f"0.0.0.0:{PORT}",
    ]
    with log_file("sluice-from-elsewhere").open("wb") as output:
        process = subprocess.Popen(wire.command(sluice), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
    try:
        until_true(lambda: status(wire, "/healthz") == 200, "the admin port")
        assert status(wire, "/readyz") in (200, 503)
        assert {status(wire, path) for path in (PAGE, "/metrics")} == {200}
        assert {path: status(wire, path) for path in CLOSED} == dict.fromkeys(CLOSED, FORBIDDEN)
        assert {status(wire, path, body) for path, body in CHANGES.items()} == {FORBIDDEN}
        assert {status(wire, path, here=True) for path in ("/quotas", "/admin/quotas")} == {200}
        assert {status(wire, path, body, here=True) for path, body in CHANGES.items()} == {FORBIDDEN}
    finally:
        process.terminate()
        process.wait(30)
