"""One script of topic operations under one quota, at the same times: once at the broker's own controller, once through Sluice."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from protocol.api_keys import ApiKey
from tests.support.frames import layout_codec
from tests.support.frames.kafka_frames import api_of, api_versions
from tests.support.frames.message_strategies import BODY_AT
from tests.support.frames.topic_change_layouts import change_layout, topics_field
from tests.support.frames.topic_frames import QUOTA_EXCEEDED, create, create_entries, delete, grow
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import set_client_quota
from tests.support.places import temporary_directory
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.kafka
RATE = 2.0
"""The bucket holds 22 tokens: eleven samples of a second."""
WINDOW_MS = 1_000
STEP_SECONDS = 0.4
CLIENTS = ("first", "second", "third", "old-1", "old-2", "old-3", "old-4")
"""In Sluice a request of a version that predates refusals waits for its client's debt; a broker serves it on a new connection."""
TIMEOUT_SECONDS = 30
CREATE, DELETE, GROW = ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS

Ids = dict[str, bytes]


class Step(NamedTuple):
    """One request: its client, and a function that makes it from a prefix of topic names and the topic ids of earlier answers."""

    client: str
    request: Callable[[str, Ids], bytes]


class Said(NamedTuple):
    """The answer to a request: its entries without values that differ between the two runs, and the throttle time.

    The request was judged at a time between `sent_s` and `answered_s`.
    """

    entries: list[dict[str, Any]]
    throttle_ms: int
    sent_s: float = 0.0
    answered_s: float = 0.0

    @property
    def errors(self) -> list[tuple[str | None, int]]:
        """The name and the error code of each topic."""
        return [(entry["Name"], entry["ErrorCode"]) for entry in self.entries]


def _made(names: dict[str, int], *, version: int = 7, validate_only: bool = False) -> Callable[[str, Ids], bytes]:
    return lambda prefix, _ids: create(
        1, {prefix + name if name.isalnum() else name: count for name, count in names.items()}, version=version, validate_only=validate_only
    )


def _grown(names: dict[str, int], *, version: int = 3, validate_only: bool = False) -> Callable[[str, Ids], bytes]:
    return lambda prefix, _ids: grow(
        1, {prefix + name: total for name, total in names.items()}, version=version, validate_only=validate_only
    )


def _deleted(*names: str, version: int = 6) -> Callable[[str, Ids], bytes]:
    return lambda prefix, _ids: delete(1, [prefix + name for name in names], version=version)


def _deleted_by_id(*names: str) -> Callable[[str, Ids], bytes]:
    return lambda prefix, ids: delete(1, topic_ids=[ids[prefix + name] for name in names])


def _entries(*entries: dict[str, Any]) -> Callable[[str, Ids], bytes]:
    return lambda prefix, _ids: create_entries(1, [{**entry, "Name": prefix + entry["Name"]} for entry in entries])


BY_HAND = [{"PartitionIndex": index, "BrokerIds": [1]} for index in range(4)]
SCRIPT = [
    Step("first", _made({"a": 7, "b": 8, "g": 1})),
    Step("first", _made({"a": 8, "c": 30, "d": 3, "e": 1})),  # a exists, c exhausts the quota, d and e are beyond it
    Step("first", _made({"a": 8, "e": 1})),  # a topic that exists is reported as such even when the quota is exhausted
    Step("first", _made({"e": 1}, validate_only=True)),
    Step("first", _made({"..": 1, "e": 1})),
    Step("first", _made({"e": 1}, version=6)),
    Step("first", _deleted("a")),
    Step("first", _deleted("a", version=5)),
    Step("first", _grown({"b": 10, "none": 4})),
    Step("first", _grown({"b": 8})),
    Step("old-1", _made({"f": 40}, version=5)),  # from here on, versions that predate refusals
    Step("old-2", _deleted("a", version=4)),
    Step("old-3", _grown({"b": 50}, version=2)),
    Step("old-4", _made({"old": 1, "f": 7}, version=2)),
    Step("second", _grown({"b": 15})),
    Step("second", _made({"v": 10}, validate_only=True)),
    Step("second", _deleted_by_id("c")),
    Step("second", _deleted_by_id("b", "g")),
    Step("second", _made({"z": -1})),
    Step("second", _made({"z": -1}, version=4)),
    Step("third", _entries(*({"Name": name, "NumPartitions": 5, "ReplicationFactor": 1} for name in ("x", "y", "x")))),
    Step("third", _entries({"Name": "m", "NumPartitions": -1, "ReplicationFactor": -1, "Assignments": BY_HAND})),
    Step("third", _made({"p": -1, "q": -1})),
    Step("third", _grown({"p": 30}, validate_only=True)),
    Step("third", _made({"r": 1, "s": 1})),
]


class Talker:
    """Sends frames to one address; every request has its own connection, since the connection of a throttled one is not read."""

    def __init__(self, address: str, who: str, prefix: str) -> None:
        host, port = address.split(":")
        self._address = (host, int(port))
        self._who = who
        self._prefix = prefix
        self._ids: Ids = {}

    def say(self, step: Step) -> Said:
        """Send a step's request and read its answer."""
        frame = _as_client(step.request(self._prefix, self._ids), f"{self._who}-{step.client}")
        with socket.create_connection(self._address, TIMEOUT_SECONDS) as sock:
            sock.sendall(api_versions(0, 0))
            _read_frame(sock)
            sent_s = time.monotonic()
            sock.sendall(frame)
            answer = _read_frame(sock)
            return self._read(frame, answer)._replace(sent_s=sent_s, answered_s=time.monotonic())

    def play(self, began: float) -> list[Said]:
        """Send all requests of the script, each at its time."""
        said = []
        for number, step in enumerate(SCRIPT):
            time.sleep(max(0.0, began + number * STEP_SECONDS - time.monotonic()))
            said.append(self.say(step))
        return said

    def _read(self, request: bytes, frame: bytes) -> Said:
        api = api_of(*struct.unpack_from(">hh", request, 4))
        body, end = layout_codec.decode(change_layout(api, "response"), frame, BODY_AT[api.response_header_version])
        assert end == len(frame)
        entries = body[topics_field(api, "response")]
        for entry in entries:
            if entry["Name"] is not None and entry.get("TopicId", bytes(16)) != bytes(16):
                self._ids[entry["Name"]] = entry["TopicId"]
        return Said([self._plain(entry) for entry in entries], body.get("ThrottleTimeMs", 0))

    def _plain(self, entry: dict[str, Any]) -> dict[str, Any]:
        plain = {name: value for name, value in entry.items() if name not in ("Configs", "ReplicationFactor", layout_codec.UNKNOWN)}
        for name in ("Name", "ErrorMessage"):
            if isinstance(plain.get(name), str):
                plain[name] = plain[name].replace(self._prefix, "")
        return plain | {"TopicId": entry.get("TopicId", bytes(16)) != bytes(16)}


def _as_client(frame: bytes, client_id: str) -> bytes:
    """Replace the client-id of a frame."""
    (length,) = struct.unpack_from(">h", frame, 12)
    changed = frame[4:12] + struct.pack(">h", len(client_id)) + client_id.encode() + frame[14 + length :]
    return struct.pack(">i", len(changed)) + changed


def _read_frame(sock: socket.socket) -> bytes:
    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = sock.recv(count - len(data))
            assert piece, "closed by the other side"
            data += piece
        return data

    length = exactly(4)
    return length + exactly(struct.unpack(">i", length)[0])


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    """A Kafka 4.3.1 with `num.partitions` = 4."""
    with KafkaCluster(KRAFT, settings={"num.partitions": 4}, name="kafka-mutations") as kafka:
        yield kafka


@pytest.fixture(scope="module")
def played(cluster: KafkaCluster, tools: JavaTools) -> tuple[list[Said], list[Said]]:
    """Return the answers of the controller with its own quota, and the answers through Sluice."""
    for client in CLIENTS:
        set_client_quota(tools, cluster.bootstrap, f"native-{client}", controller_mutation_rate=RATE)
    with temporary_directory("quotas") as directory:
        entries = [{"client-id": f"sluice-{client}", "controller_mutation_rate": RATE} for client in CLIENTS]
        quotas = write_quotas(Path(directory, "quotas.toml"), entries)
        with SluiceProcess(cluster.bootstrap, quotas=quotas, enforcement="mute", name="sluice-mutations") as sluice:
            talkers = [Talker(cluster.bootstrap, "native", "native-"), Talker(sluice.bootstrap, "sluice", "sluice-")]
            began = time.monotonic() + 0.1
            with ThreadPoolExecutor(len(talkers)) as threads:
                native, ours = threads.map(lambda talker: talker.play(began), talkers)
            tokens = {group["tags"]["client-id"]: group["tokens"] for group in sluice.quotas()["groups"]}
            assert set(tokens) == {f"sluice-{client}" for client in CLIENTS}
    return native, ours


@pytest.mark.parametrize("number", range(len(SCRIPT)))
def test_the_same_topics_are_refused(played: tuple[list[Said], list[Said]], number: int) -> None:
    """Each request gets the same entries through Sluice as from the controller with the same quota, and throttle times differ by at most
    one window, and by the time between the two judgements of a request.
    """
    native, ours = (one[number] for one in played)

    def in_order(said: Said) -> list[dict[str, Any]]:
        return sorted(said.entries, key=lambda entry: (entry["Name"] or "", entry["ErrorCode"]))

    assert in_order(ours) == in_order(native)
    both = [(*its, *theirs) for its, theirs in zip(*(_times(one) for one in played), strict=True)][: number + 1]
    apart_ms = 1_000 * max(max(times) - min(times) for times in both)
    assert abs(ours.throttle_ms - native.throttle_ms) <= WINDOW_MS + apart_ms, (ours.throttle_ms, native.throttle_ms)
    assert (ours.throttle_ms > 0) == (native.throttle_ms > 0)


def _times(said: list[Said]) -> list[tuple[float, float]]:
    return [(one.sent_s, one.answered_s) for one in said]


def test_the_script_reaches_every_kind_of_verdict(played: tuple[list[Said], list[Said]]) -> None:
    """The script has requests that are refused in part, refused whole, and throttled without a refusal."""
    native = played[0]
    refused = [[error == QUOTA_EXCEEDED for _, error in said.errors] for said in native]
    assert any(any(one) and not all(one) for one in refused)
    assert any(all(one) for one in refused)
    assert any(said.throttle_ms > 0 and not any(one) for said, one in zip(native, refused, strict=True))
    assert max(said.throttle_ms for said in native) > 5 * WINDOW_MS
