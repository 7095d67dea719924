"""A librdkafka member of a consumer group in a child process that can be killed; its events go to a file of JSON lines.

python -m tests.support.clients.group_member OUT TOPIC SETTINGS
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.clients.confluent import QUIET
from tests.support.places import ROOT

BATCH = 500
POLL_SECONDS = 0.2
STATISTICS_MS = 1_000


class GroupMember:
    """A member as a child process; a context manager that ends it with SIGTERM, after which it leaves its group.

    Args:
        bootstrap: address that it connects to.
        topic: the topic that it reads.
        group: its group.
        out: the file of its events.
        settings: client settings.
    """

    def __init__(self, bootstrap: str, topic: str, group: str, out: Path, settings: Mapping[str, str | int] | None = None) -> None:
        self._out = out
        base = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        config = json.dumps({**base, "statistics.interval.ms": STATISTICS_MS, **QUIET, **(settings or {})})
        command = [sys.executable, "-m", "tests.support.clients.group_member", str(out), topic, config]
        self._process = subprocess.Popen(command, cwd=ROOT)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return its events of one kind, oldest first, each with the monotonic time `at` in seconds."""
        if not self._out.exists():
            return []
        lines = [line for line in self._out.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in map(json.loads, lines) if event["event"] == name]

    @property
    def assignments(self) -> int:
        """How often partitions were assigned to it."""
        return len(self.events("rebalanced"))

    def owned(self) -> list[int]:
        """The partitions that it owns now."""
        changes = self.events("assigned")
        return changes[-1]["partitions"] if changes else []

    @property
    def slowest_heartbeat_ms(self) -> int:
        """The longest time that its coordinator took for an answer, of any kind."""
        return round(max((event["rtt_max_ms"] for event in self.events("coordinator")), default=0.0))

    def read_offsets(self) -> set[tuple[int, int]]:
        """Return (partition, offset) of all records that it read and has tried to commit."""
        return {(partition, offset) for event in self.events("read") for partition, offset in event["offsets"]}

    def kill(self) -> None:
        """Send SIGKILL: its group notices by the missing heartbeats."""
        self._process.kill()
        self._process.wait()

    def leave(self) -> None:
        """Send SIGTERM: it leaves its group."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(30)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.leave()
        except subprocess.TimeoutExpired:
            self.kill()


class _Diary:
    """Writes each line in one call, so that a kill leaves complete lines only."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(self, event: str, **fields: object) -> None:
        os.write(self._descriptor, (json.dumps({"event": event, "at": time.monotonic(), **fields}) + "\n").encode())


def _live(diary: _Diary, topic: str, settings: dict[str, Any]) -> None:
    ending: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    consumer = Consumer({**settings, "stats_cb": lambda text: _note_coordinator(diary, json.loads(text))})

    def changed(_: Consumer, __: list[TopicPartition]) -> None:
        diary.note("rebalanced")

    consumer.subscribe([topic], on_assign=changed)
    owned: list[int] = []
    while not ending:
        messages = [message for message in consumer.consume(BATCH, POLL_SECONDS) if not message.error()]
        now_owned = sorted(partition.partition for partition in consumer.assignment())
        if now_owned != owned:
            owned = now_owned
            diary.note("assigned", partitions=owned)
        if messages:
            diary.note("read", offsets=[(message.partition(), message.offset()) for message in messages])
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as error:  # a rebalance came first: another member reads the record again
                diary.note("not_committed", problem=str(error))
    consumer.close()


def _note_coordinator(diary: _Diary, statistics: dict[str, Any]) -> None:
    """Record the round-trip times of librdkafka's own connection to the coordinator; `rtt` covers the last interval, in microseconds."""
    for name, broker in statistics["brokers"].items():
        if name.startswith("GroupCoordinator") and broker["rtt"]["cnt"]:
            diary.note("coordinator", rtt_max_ms=broker["rtt"]["max"] / 1_000)
        elif broker["throttle"]["max"]:
            diary.note("throttled", max_ms=broker["throttle"]["max"])


if __name__ == "__main__":
    _live(_Diary(Path(sys.argv[1])), sys.argv[2], json.loads(sys.argv[3]))
