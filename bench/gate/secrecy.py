"""The release gate on confidentiality and authorisation: numbers 6 to 10. Numbers with tests run them by pytest and count failures."""

import random
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from bench.faults.tools import Client
from bench.gate.rows import Measured, Stand
from bench.harness.engine import HOST, ROOT
from protocol.api_keys import API_VERSIONS, ApiVersion, Treatment
from protocol.messages.api_versions import read_api_keys, request_v0
from tests.support.clients.topics import new_topic, topic_id
from tests.support.frames.request_corpus import Existing, request_body
from tests.support.frames.wire import WireConnection, request_frame
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess

TESTS_S_MAX = 1_200
SEED = 7
ANSWER_S_MAX = 0.05


@dataclass(frozen=True, slots=True)
class Tests:
    """The tests of a number: their paths, and a common part of the names of those that count."""

    paths: tuple[str, ...]
    names: str


SASL = "tests/integration/listeners/test_sasl.py"
TESTS = {
    7: Tests(
        (
            "tests/integration/quotas/test_quota_authority.py",
            "tests/scenario/faults/test_fault_g11_quota_authority.py",
            "tests/scenario/faults/test_fault_g11_quota_rights.py",
        ),
        "test_",
    ),
    8: Tests((SASL,), "test_e"),
    9: Tests((SASL, "tests/scenario/listeners/test_sasl.py", "tests/proxy/base/test_secret.py"), "secret"),
    10: Tests(("tests/fuzz",), "test_"),
}


def address_scan(_stand: Stand) -> list[Measured]:
    """Number 6: a request of every API and version that a broker offers; the answers are searched for the broker's ports.

    Raises:
        RuntimeError: no direct answer of the broker has its address, so the search would find nothing.
    """
    with KafkaCluster(KRAFT, name="gate-leaks") as kafka, SluiceProcess(kafka.bootstrap, name="sluice-gate-leaks") as sluice:
        [node] = kafka.nodes.values()
        requests = list(_corpus(kafka.bootstrap))
        reported = _address_pattern((node.ports.client, node.ports.sasl, node.ports.controller))
        directly = len(_found(kafka.bootstrap, requests, reported))
        if not directly:
            raise RuntimeError("the broker reported its address to no client: this search finds nothing")
        ports = (sluice.bootstrap, f"{HOST}:{sluice.broker_port(node.node_id)}")
        found = [name for address in ports for name in _found(address, requests, reported)]
    how = f"Kafka {KRAFT}, {len(requests)} APIs and versions by two ports; asked directly, {directly} answers have it"
    return [Measured(6, how + "".join(f"; {name}" for name in found), len(found), 0, "answers")]


def _address_pattern(ports: Sequence[int]) -> re.Pattern[bytes]:
    """Return a pattern of an address: a host followed by its port as a number of four or two bytes, or the port as text."""
    numbers = [re.escape(HOST.encode() + struct.pack(kind, port)) for port in ports for kind in (">i", ">H")]
    texts = [rb"(?<!\d)%d(?!\d)" % port for port in ports]
    return re.compile(b"|".join((*numbers, *texts)))


def _corpus(bootstrap: str) -> Iterator[bytes]:
    topic = new_topic(bootstrap, "gate-corpus", partitions=2)
    existing = Existing(topic, topic_id(bootstrap, topic))
    with WireConnection(bootstrap) as connection:
        offered = read_api_keys(0, connection.ask(request_v0(1, "gate")))
    versions = [_version(key, version) for key, low, high in offered for version in range(low, high + 1)]
    for api in versions:
        if api is not None and api.treatment is not Treatment.REFUSE and (body := request_body(api, existing)) is not None:
            yield request_frame(api, body)


def _version(key: int, version: int) -> ApiVersion | None:
    return API_VERSIONS.get(key << 16 | version)


def _found(address: str, requests: Sequence[bytes], reported: re.Pattern[bytes]) -> list[str]:
    """Return key and version of the requests whose answers match; a request for which the broker closes the connection has none."""
    found = []
    for frame in requests:
        with suppress(OSError), WireConnection(address) as connection:
            if reported.search(connection.ask(frame)):
                found.append("key {} v{}".format(*struct.unpack_from(">hh", frame, 4)))
    return found


def mutated_frames(stand: Stand) -> list[Measured]:
    """Number 10: real requests with bytes changed, removed or duplicated, sent through Sluice to a real broker."""
    count = 2_000 if stand.is_quick else 20_000
    dice = random.Random(SEED)
    with KafkaCluster(KRAFT, name="gate-fuzz") as kafka, SluiceProcess(kafka.bootstrap, name="sluice-gate-fuzz") as sluice:
        [node] = kafka.nodes.values()
        requests = list(_corpus(kafka.bootstrap))
        port = sluice.broker_port(node.node_id)
        for _ in range(count):
            with suppress(OSError), Client(port) as client:
                client.socket.settimeout(ANSWER_S_MAX)
                client.send(_mutated(dice, dice.choice(requests)))
                client.answer()
        crashed = sluice.metric("kafka_sluice_internal_errors_total") if sluice.exit_code is None else float("inf")
    return [Measured(10, f"Kafka {KRAFT}, {count:,} mutated requests, seed {SEED}: errors of Sluice itself", crashed, 0, "crashes")]


def _mutated(dice: random.Random, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(4, len(data))
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                data[at : at + 4] = struct.pack(">i", dice.choice((-1, 0, 1, 2**31 - 1, -(2**31))))
            case 2:
                del data[at : at + dice.randrange(1, 9)]
            case _:
                data[at:at] = dice.randbytes(dice.randrange(1, 9))
        if len(data) < 9:
            return frame
    if dice.randrange(4):
        data[:4] = struct.pack(">i", len(data) - 4)
    return bytes(data)


def by_tests(number: int) -> Callable[[Stand], list[Measured]]:
    """Return the row that runs the tests of a number."""

    def row(_stand: Stand) -> list[Measured]:
        wanted = TESTS[number]
        with temporary_directory("gate-tests") as directory:
            failed, passed = run_tests(wanted, directory / "junit.xml")
        how = f"{passed} tests in {', '.join(wanted.paths)}{''.join(f'; failed: {name}' for name in failed)}"
        return [Measured(number, how, len(failed), 0, "failed")]

    row.__doc__ = f"Number {number}: {', '.join(TESTS[number].paths)}."
    return row


def run_tests(wanted: Tests, report: Path) -> tuple[list[str], int]:
    """Return (failed tests, number of passed tests); a skipped test counts as failed.

    Raises:
        RuntimeError: there is no such test.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *wanted.paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TESTS_S_MAX, check=False)
    cases = list(ElementTree.parse(report).iter("testcase")) if report.exists() else []  # noqa: S314 - pytest wrote it
    counted = [case for case in cases if wanted.names in (case.get("name") or "")]
    if not counted:
        raise RuntimeError(f"no test was run: {done.stdout[-500:]}")
    failed = [str(case.get("name")) for case in counted if any(case.find(kind) is not None for kind in ("failure", "error", "skipped"))]
    if failed:
        print(done.stdout[-2_000:], flush=True)
    return failed, len(counted) - len(failed)


ROWS: dict[Callable[[Stand], list[Measured]], tuple[int, ...]] = {
    address_scan: (6,),
    by_tests(7): (7,),
    by_tests(8): (8,),
    by_tests(9): (9,),
    mutated_frames: (10,),
    by_tests(10): (10,),
}
