"""Unmodified tools run the same script against a broker and against Sluice, and print the same lines.

Where they differ, the difference is listed here with its reason, and in docs/reference/quota-administration.md.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from sluice.admin import ClientQuotaAlteration, QuotaAdmin
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import Command, JavaTools, ToolFailedError
from tests.support.kafka.tool_calls import CONFIG_COMMAND
from tests.support.processes.node_clients import client_options, play, require_node
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
LAG_SECONDS = 10

RATES = "producer_byte_rate=1024,consumer_byte_rate=2048.0"
NAMED = {
    "user": [("--entity-type", "users", "--entity-name", "k alice"), ("--user", "k alice")],
    "default user": [("--entity-type", "users", "--entity-default"), ("--user-defaults",)],
    "client": [("--entity-type", "clients", "--entity-name", "k/c"), ("--client", "k/c")],
    "default client": [("--entity-type", "clients", "--entity-default"), ("--client-defaults",)],
    "user and client": [
        ("--entity-type", "users", "--entity-name", "k alice", "--entity-type", "clients", "--entity-name", "k/c"),
        ("--entity-type", "clients", "--entity-type", "users", "--entity-name", "k/c", "--entity-name", "k alice"),
        ("--user", "k alice", "--client", "k/c"),
    ],
    "user and default client": [
        ("--entity-type", "users", "--entity-name", "k alice", "--entity-type", "clients", "--entity-default"),
        ("--user", "k alice", "--client-defaults"),
    ],
    "defaults": [("--user-defaults", "--client-defaults")],
    "ip": [("--entity-type", "ips", "--entity-name", "127.0.0.99"), ("--ip", "127.0.0.99")],
    "default ip": [("--entity-type", "ips", "--entity-default"), ("--ip-defaults",)],
}
"""Each form in which kafka-configs names an entity."""
TYPES = [("users",), ("clients",), ("ips",), ("users", "clients")]


def commands(config: Path) -> Iterator[tuple[str, ...]]:
    """Return every form of the command: set, change, set from a file, describe by name and by type, delete, and refused forms."""
    for at, (entity, forms) in enumerate(NAMED.items()):
        is_ip = "ip" in entity.split()
        values = "connection_creation_rate=20" if is_ip else RATES
        yield ("--alter", *forms[0], "--add-config", values)
        if not is_ip:
            changes = ("--add-config-file", str(config)) if at == 0 else ("--add-config", "request_percentage=12.5")
            yield ("--alter", *forms[-1], *changes, *(("--delete-config", "consumer_byte_rate") if at else ()))
        for form in forms:
            yield ("--describe", *form)
    for types in TYPES:
        yield ("--describe", *(word for kind in types for word in ("--entity-type", kind)))
    user = NAMED["user"][0]
    yield ("--alter", *user, "--delete-config", "consumer_byte_rate,never_was")
    yield ("--alter", *user, "--add-config", "never_was=1")
    yield ("--alter", *user, "--add-config", "producer_byte_rate=1.5")
    yield ("--alter", *user, "--add-config", "producer_byte_rate=-1")
    yield ("--alter", *user, "--add-config", "producer_byte_rate=lots")
    yield ("--alter", *NAMED["ip"][0], "--add-config", "producer_byte_rate=1")
    yield ("--describe", "--user", "nobody")
    for entity, forms in NAMED.items():
        keys = "connection_creation_rate" if "ip" in entity.split() else "producer_byte_rate"
        yield ("--alter", *forms[0], "--delete-config", keys)
    yield ("--describe", "--entity-type", "users")


@dataclass(frozen=True, slots=True)
class Two:
    """A broker, a Sluice that keeps quotas in the way of such a broker, and the tools of the broker's version."""

    direct: str
    sluice: str
    tools: JavaTools
    profile: str


@pytest.fixture(scope="module", params=["kraft", "zookeeper"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    """Kafka 4.3.1 with KRaft, 3.9.1 with ZooKeeper."""
    kafka: KafkaCluster = request.getfixturevalue("kraft" if request.param == "kraft" else "zookeeper_kafka")
    tools: JavaTools = request.getfixturevalue("tools" if request.param == "kraft" else "old_tools")
    config = tmp_path_factory.mktemp("same") / "sluice.toml"
    config.write_text(f'[quotas]\nprofile = "{request.param}"\n')
    arguments = ("--config", str(config), "--quota-admin", "User:ANONYMOUS")
    with SluiceProcess(kafka.bootstrap, arguments=arguments, name=f"sluice-same-{request.param}") as sluice:
        yield Two(kafka.bootstrap, sluice.bootstrap, tools, request.param)
    with QuotaAdmin(kafka.bootstrap) as admin:  # other tests use that broker, and no quota may limit them
        admin.alter_client_quotas(
            [ClientQuotaAlteration(entity, dict.fromkeys(values)) for entity, values in admin.describe_client_quotas().items()]
        )


def seen(command: Command, address: str) -> list[str]:
    """Return the output and the exit of a command; the order of lines and values is normalised, and stack traces are left out."""
    with contextlib.suppress(ToolFailedError):
        command.wait()
    lines = (command.out + command.err).replace(address, "ADDRESS").splitlines()
    kept = [_ordered(line) for line in lines if not line.startswith(("\tat ", "\t... ")) and "Reconfiguration failed" not in line]
    return [f"exit {command.code}", *sorted(kept)]


def _ordered(line: str) -> str:
    """Return a line of --describe with its values sorted: brokers list them in the order of Java's hashes."""
    entity, are, values = line.partition(" are ")
    return entity + are + ", ".join(sorted(values.split(", ")))


def side_by_side(two: Two, main_class: str, arguments: Callable[[str], tuple[str, ...]], *, may_lag: bool) -> tuple[list[str], list[str]]:
    """Run a command against both; a KRaft broker may describe the previous state for a moment."""
    deadline = time.monotonic() + LAG_SECONDS
    while True:
        running = [(two.tools.start(main_class, *arguments(address)), address) for address in (two.direct, two.sluice)]
        theirs, ours = [seen(command, address) for command, address in running]
        if ours == theirs or not may_lag or time.monotonic() > deadline:
            return theirs, ours


def test_kafka_configs_prints_the_same(two: Two, tmp_path: Path) -> None:
    """kafka-configs prints the same against both in every form that sets, describes and deletes quotas, and for every refusal."""
    config = tmp_path / "more.properties"
    config.write_text("producer_byte_rate=4096\ncontroller_mutation_rate=2.5\n")
    for form in commands(config):
        theirs, ours = side_by_side(
            two, CONFIG_COMMAND, lambda address, form=form: ("--bootstrap-server", address, *form), may_lag="--describe" in form
        )
        assert ours == theirs, form


def test_kafka_pythons_messages_are_answered_the_same(two: Two) -> None:
    """Quota requests of kafka-python, in both versions, get the same answers from the broker and from Sluice."""
    entry, component = AlterClientQuotasRequest.EntryData, DescribeClientQuotasRequest.ComponentData
    part, op = entry.EntityData, entry.OpData
    entity = [part(entity_type="user", entity_name="p-1"), part(entity_type="client-id", entity_name=None)]
    refused = entry(entity=[part(entity_type="user", entity_name="")], ops=[op(key="consumer_byte_rate", value=1.0, remove=False)])
    found = DescribeClientQuotasRequest(components=[component(entity_type="user", match_type=0, match="p-1")], strict=False)
    wrong = DescribeClientQuotasRequest(components=[component(entity_type="user", match_type=9, match=None)], strict=True)
    for version in (0, 1):
        for is_removed in (False, True):
            ops = [op(key="consumer_byte_rate", value=77.0, remove=is_removed)]
            altered = AlterClientQuotasRequest(entries=[entry(entity=entity, ops=ops), refused], validate_only=False)
            assert len(set(answers(two, altered, version, AlterClientQuotasResponse))) == 1
            deadline = time.monotonic() + LAG_SECONDS
            while len(described := set(answers(two, found, version, DescribeClientQuotasResponse))) > 1:
                assert time.monotonic() < deadline, described
        assert len(set(answers(two, wrong, version, DescribeClientQuotasResponse))) == 1


def answers(two: Two, request: Any, version: int, answer: Any) -> list[str]:
    """Return the broker's answer and Sluice's."""
    return [exchanged(address, request, version, answer) for address in (two.direct, two.sluice)]


def exchanged(address: str, request: Any, version: int, answer: Any) -> str:
    """Send a request, return the fields of its answer as text; lists are unordered."""
    host, _, port = address.rpartition(":")
    request.with_header(correlation_id=5, client_id="kafka-python")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(request.encode(version=version, header=True, framed=True))
        file = sock.makefile("rb")
        size = int.from_bytes(file.read(4))
        frame = file.read(size)
    return repr(_unordered(answer.decode(frame, version=version, header=True).to_dict(json=False)))


def _unordered(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _unordered(value) for name, value in tree.items()}
    return sorted(map(_unordered, tree), key=repr) if isinstance(tree, list | tuple) else tree


def test_platformatics_admin_sees_the_same(two: Two) -> None:
    """The admin client of @platformatic/kafka gets the same results and refusals from the broker and from Sluice."""
    require_node()
    entity = [{"entityType": "user", "entityName": "n-1"}, {"entityType": "client-id", "entityName": "n c"}]
    named = [{"entityType": "user", "matchType": 0, "match": "n-1"}]
    wrong = [{"entityType": "group", "matchType": 2, "match": None}]
    sets = {"key": "producer_byte_rate", "value": 4_096, "remove": False}
    nobody = [{"entityType": "user", "entityName": ""}]
    for ops, refused in (([sets], []), ([sets | {"remove": True}], [{"entities": nobody, "ops": [sets]}])):
        alters = {"do": "alter_quotas", "entries": [{"entities": entity, "ops": ops}, *refused]}
        theirs, ours = (said(address, [alters, {"do": "describe_quotas", "components": wrong}]) for address in (two.direct, two.sluice))
        assert ours == theirs
        deadline = time.monotonic() + LAG_SECONDS
        while len({repr(said(address, [{"do": "describe_quotas", "components": named}])) for address in (two.direct, two.sluice)}) > 1:
            assert time.monotonic() < deadline


def said(address: str, steps: list[dict[str, Any]]) -> list[Any]:
    """Return the results of a script's steps, without their durations."""
    lines = play(client_options(address, "node"), steps)
    return [_unordered({name: value for name, value in line.items() if name != "elapsed_ms"}) for line in lines]


def test_javas_admin_sees_the_same(two: Two) -> None:
    """Java's admin client gets the same results, exceptions and messages from the broker and from Sluice."""
    for run in ("set", "describe", "refused", "describe", "remove", "describe"):
        theirs, ours = side_by_side(two, "QuotaScript", lambda address, run=run: (address, run), may_lag=run == "describe")
        assert ours == theirs, run
        assert ours[0] == "exit 0"
