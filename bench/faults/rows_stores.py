"""Rows B3, B4 and B11 at full size: expired ZooKeeper sessions, nodes with invalid data, two writers. Needs JDK and Maven."""

import asyncio
import itertools
import json
import logging
import random
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient

from bench.faults.tools import Figure, ms
from proxy.quota_store.in_force import NOTHING, InForce, in_force
from proxy.quota_store.store import StoreContent, StoreUnavailable
from proxy.quota_store.zookeeper import client as zookeeper_client
from proxy.quota_store.zookeeper.client import ZookeeperClient
from proxy.telemetry import log
from quota.admin.kraft import Change
from quota.admin.messages import entity_key
from quota.entity import ClientQuotaEntity, ClientQuotaType
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.zookeeper import ZookeeperServer
from tests.support.processes.stores import Nodes, Opened, Place, file_place, opened_place, topic_place, zookeeper_place

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
ALICE, BOB = entity_key([("user", "alice")]), entity_key([("user", "bob")])
ALICE_PATH, BOB_PATH = "/config/users/alice", "/config/users/bob"
LIVE_S = 2.0

CYCLES = 50
SESSION_S = 2.0
FROZEN_S = 3.5
"""How long ZooKeeper is stopped: longer than the session of `SESSION_S`, which has expired when it continues."""

CASES = 5_000
CHANGES = 500


def b3_sessions_expire(_folder: Path) -> list[Figure]:
    """ZooKeeper is unreachable for longer than a session, 50 times, and a value changes meanwhile: how soon it is in force."""
    kept_s, zookeeper_client.SESSION_S = zookeeper_client.SESSION_S, SESSION_S  # type: ignore[misc]
    try:
        with ZookeeperServer("bench-zookeeper-b3") as server, _Listener():
            waits, missed, sessions = asyncio.run(_expire(server))
    finally:
        zookeeper_client.SESSION_S = kept_s  # type: ignore[misc]
    return [
        Figure(
            "B3",
            f"{CYCLES} times forgotten by ZooKeeper: a change of that time in force after the connect, longest",
            ms(max(waits)),
            2_000,
            "ms",
        ),
        Figure("B3", "the same, median", ms(sorted(waits)[len(waits) // 2]), None, "ms"),
        Figure("B3", "changes missed", missed, 0, ""),
        Figure("B3", "cycles that ended with the session of before", CYCLES - sessions, None, ""),
    ]


async def _expire(server: ZookeeperServer) -> tuple[list[float], int, int]:
    connects: list[float] = []
    clients: list[ZookeeperClient] = []

    def make_client(on_connected: Callable[[bool], None]) -> ZookeeperClient:
        def noted(connected: bool) -> None:
            if connected:
                connects.append(time.monotonic())
            on_connected(connected)

        clients.append(ZookeeperClient(server.address, noted))
        return clients[-1]

    async with opened_place(zookeeper_place(server.address, make_client=make_client)) as place:
        opened = await place.open()
        await opened.alter(Change(ALICE, PRODUCE, 1.0))
        writer = KazooClient(server.address, timeout=30)
        await asyncio.to_thread(writer.start)
        waits, missed, sessions = [], 0, 0
        for number in range(CYCLES):
            before, known = clients[-1]._client.client_id, len(connects)
            server.freeze()
            node = json.dumps({"version": 1, "config": {PRODUCE: str(number + 10)}}).encode()
            writing = writer.set_async(
                ALICE_PATH, node
            )  # the bytes are in the socket, and ZooKeeper handles them first; no client is notified
            await asyncio.sleep(FROZEN_S)
            server.thaw()
            await asyncio.to_thread(writing.get, timeout=20)
            await _until(lambda known=known: len(connects) > known)  # type: ignore[misc]
            try:
                await opened.until(lambda content, wanted=number + 10.0: content.quotas[ALICE] == {PRODUCE: wanted}, 10.0)  # type: ignore[misc]
                waits.append(max(0.0, time.monotonic() - connects[-1]))
            except AssertionError:
                missed += 1
            sessions += clients[-1]._client.client_id != before
        await asyncio.to_thread(writer.stop)
        writer.close()
    return waits, missed, sessions


async def _until(good: Callable[[], bool]) -> None:
    while not good():  # noqa: ASYNC110 - a thread of kazoo's makes it so
        await asyncio.sleep(0.001)


def b4_rubbish(_folder: Path) -> list[Figure]:
    """5,000 times invalid data in one node of ZooKeeper, with a good change beside it: which last good values stay, and what is delayed."""
    with ZookeeperServer("bench-zookeeper-b4") as server, _Listener() as listener:
        counts, waits = asyncio.run(_fill_with_rubbish(server.address))
    return [
        Figure("B4", f"{CASES} nodes of rubbish: changes beside them that were not in force within {LIVE_S:g} s", counts["late"], 0, ""),
        Figure("B4", "the longest until one was", ms(max(waits)), ms(LIVE_S), "ms"),
        Figure("B4", "lines that the log would have", listener.lines, None, ""),
        Figure("B4", "values that neither stood there nor were the last good one", counts["wrong"], 0, ""),
        Figure("B4", "moments without a bound for the node's entity", counts["unlimited"], 0, ""),
        Figure("B4", "lines of log or status that reported what stands in a node", counts["reported"] + listener.reported, 0, ""),
    ]


class _Listener(logging.Handler):
    """Keeps the log of the store off the terminal, and counts lines that contain a node's data."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0
        self.reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += 1
        self.reported += SECRET in f"{record.getMessage()} {record.__dict__}"

    def __enter__(self) -> "_Listener":
        log.LOGGER.addHandler(self)
        log.LOGGER.propagate = False
        return self

    def __exit__(self, *error: object) -> None:
        log.LOGGER.removeHandler(self)
        log.LOGGER.propagate = True


async def _fill_with_rubbish(address: str) -> tuple[dict[str, int], list[float]]:
    counts = dict.fromkeys(("late", "wrong", "unlimited", "reported"), 0)
    waits: list[float] = []
    async with opened_place(zookeeper_place(address)) as place:
        opened = await place.open()
        await opened.alter(Change(ALICE, PRODUCE, 1_000.0), Change(BOB, PRODUCE, 1.0))
        nodes = await asyncio.to_thread(Nodes, address)
        enforced = in_force(opened.content, NOTHING)
        for number, (data, values) in enumerate(itertools.islice(_nodes(random.Random(4)), CASES)):
            last = opened.content.quotas[ALICE][PRODUCE]
            await asyncio.to_thread(_write, nodes, data, number)
            try:
                waits.append(await opened.until(lambda content, wanted=number + 2.0: content.quotas[BOB] == {PRODUCE: wanted}, LIVE_S))  # type: ignore[misc]
            except AssertionError:
                counts["late"] += 1
                continue
            enforced = in_force(opened.content, enforced)
            counts["wrong"] += opened.content.quotas.get(ALICE, {}).get(PRODUCE) not in (values or {last})
            counts["unlimited"] += not _is_bounded(enforced)
            counts["reported"] += SECRET in str(opened.store.status)
        await asyncio.to_thread(nodes.close)
    return counts, waits


SECRET = "c4n4ry"  # noqa: S105 - to be looked for in what is reported


def _write(nodes: Nodes, data: bytes, number: int) -> None:
    nodes.write(ALICE_PATH, data)
    nodes.notify(b'{"version":2,"entity_path":"users/alice"}')
    nodes.write(BOB_PATH, json.dumps({"version": 1, "config": {PRODUCE: str(number + 2)}}).encode())
    nodes.notify(b'{"version":2,"entity_path":"users/bob"}')


def _is_bounded(enforced: InForce) -> bool:
    bound = enforced.table[ClientQuotaType.PRODUCE].get(ClientQuotaEntity("alice"))
    return bound is not None and 0 < bound < 1e15


def _nodes(dice: random.Random) -> Iterator[tuple[bytes, set[float]]]:
    """Yield the data of a node, and the values that may be read from it; without any, the last good one has to stay."""
    while True:
        yield dice.choice(_KINDS)(dice)


def _config(text: str, *, secret: str = SECRET) -> bytes:
    return json.dumps({"version": 1, "config": {"SCRAM-SHA-256": f"salt={secret}", PRODUCE: text, FETCH: "7"}}).encode()


def _good(dice: random.Random) -> tuple[bytes, set[float]]:
    value = dice.randrange(1, 10**9)
    return _config(str(value)), {float(value)}


def _torn(dice: random.Random) -> tuple[bytes, set[float]]:
    whole = _config(str(dice.randrange(10**9)))
    return whole[: dice.randrange(1, len(whole))], set()


def _noise(dice: random.Random) -> tuple[bytes, set[float]]:
    return dice.randbytes(dice.randrange(1, 300)), set()


def _flipped(dice: random.Random) -> tuple[bytes, set[float]]:
    """Return data in which a byte outside of the values is changed."""
    whole = bytearray(_config("5"))
    whole[dice.choice((0, 1, len(whole) - 1, len(whole) - 2))] = dice.randrange(0x80, 0x100)
    return bytes(whole), set()


def _other_shape(dice: random.Random) -> tuple[bytes, set[float]]:
    shapes = ["[]", "7", '"x"', "null", '{"version":1}', '{"config":[]}', '{"config":{"producer_byte_rate":7}}', '{"config":null}']
    return (dice.choice(shapes) + " " * dice.randrange(5)).encode(), set()


def _no_number(dice: random.Random) -> tuple[bytes, set[float]]:
    texts = [
        "",
        "x",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "1.5",
        "1e3",
        "0x10",
        " 7",
        "7 ",
        "1_0",
        "9223372036854775808",
        "7;",
        "\u0663",
    ]
    return _config(dice.choice(texts)), set()


def _zero_or_below(dice: random.Random) -> tuple[bytes, set[float]]:
    value = dice.choice((0, -1, -(2**63)))
    return _config(str(value)), {float(value)}


def _twice(dice: random.Random) -> tuple[bytes, set[float]]:
    value = dice.randrange(1, 10**6)
    text = f'{{"version":1,"config":{{"producer_byte_rate":"x","producer_byte_rate":"{value}"}}}}'
    return text.encode(), {float(value)}


def _large(dice: random.Random) -> tuple[bytes, set[float]]:
    """Return data that is nearly as large as ZooKeeper accepts, for one node of 200."""
    return (b"[" * 1_000_000 if dice.randrange(200) == 0 else b"[" * 10_000), set()


def _of_version(dice: random.Random) -> tuple[bytes, set[float]]:
    """Return data of another version than the brokers' version 1; it is read as far as it is understood."""
    value = dice.randrange(1, 10**6)
    config = {PRODUCE: str(value), "later": dice.choice(("", "\u2028", "{}"))}
    return json.dumps({"version": dice.choice((0, 2, "x", None)), "config": config}).encode(), {float(value)}


_KINDS = (_good, _torn, _noise, _flipped, _other_shape, _no_number, _zero_or_below, _twice, _large, _of_version)


def b11_two_writers(_folder: Path) -> list[Figure]:
    """Two Sluices increment one value 500 times each, at once, in every shared store: how many of the 1,000 updates are lost."""
    figures: list[Figure] = []
    for kind in ("file", "zookeeper", "topic"):
        with ExitStack() as stack, _Listener():
            lost, refused, seconds = asyncio.run(_added(_place(kind, stack)))
        figures += [
            Figure("B11", f"{kind}: updates lost, of two writers' {2 * CHANGES}", lost, 0, ""),
            Figure("B11", f"{kind}: refused, to be tried again", refused, None, ""),
            Figure("B11", f"{kind}: changes a second, both together", 2 * CHANGES / seconds, None, "/s"),
        ]
    return figures


def _place(kind: str, stack: ExitStack) -> Place:
    if kind == "file":
        return file_place(Path(stack.enter_context(tempfile.TemporaryDirectory())))
    if kind == "zookeeper":
        return zookeeper_place(stack.enter_context(ZookeeperServer("bench-zookeeper-b11")).address)
    return topic_place(stack.enter_context(KafkaCluster(name="bench-b11")).bootstrap, "bench-b11")


async def _added(place: Place) -> tuple[int, int, float]:
    refused = 0

    async def add(opened: Opened) -> None:
        nonlocal refused
        made = 0
        while made < CHANGES:
            try:
                await opened.store.alter(_one_more)
                made += 1
            except StoreUnavailable as error:
                if not error.is_certain:
                    raise RuntimeError(f"it is unknown whether a change was made: {error}") from error
                refused += 1

    async with opened_place(place):
        one, other = await place.open(), await place.open()
        await one.alter(Change(ALICE, PRODUCE, 1.0))
        began = time.monotonic()
        writing: list[Coroutine[Any, Any, None]] = [add(one), add(other)]
        await asyncio.gather(*writing)
        seconds = time.monotonic() - began
        await one.store.reload()
        await one.until(lambda content: content == other.content)
        return int(1 + 2 * CHANGES - one.content.quotas[ALICE][PRODUCE]), refused, seconds


def _one_more(content: StoreContent) -> tuple[None, list[Change]]:
    return None, [Change(ALICE, PRODUCE, content.quotas[ALICE][PRODUCE] + 1)]


ROWS: dict[str, Callable[[Path], list[Figure]]] = {"B3": b3_sessions_expire, "B4": b4_rubbish, "B11": b11_two_writers}
