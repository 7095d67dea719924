"""What the topic of a fleet has to be, and the commands for operators that make it so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, Final

RETENTION_MS: Final = 60_000
"""Minimum age of a message before brokers may delete it: a member that starts reads this part of the log."""
CONFIGS: Final = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "LogAppendTime",
    "retention.ms": str(RETENTION_MS),
    "segment.ms": "60000",
    "segment.bytes": str(16 * 1024 * 1024),
}
"""Settings of a created topic."""
_EXACT: Final = ("cleanup.policy", "message.timestamp.type")
_OPERATIONS: Final = ("Read", "Write", "Describe", "DescribeConfigs")


def unsuitable(configs: Mapping[str, str]) -> dict[str, str]:
    """Return those settings of an existing topic that have to be changed; settings that are not known count as suitable."""
    wrong = {name: configs[name] for name in _EXACT if name in configs and configs[name] != CONFIGS[name]}
    retention_ms = configs.get("retention.ms")
    if retention_ms is not None and int(retention_ms) < RETENTION_MS:  # -1 is unlimited: the log would grow for ever
        wrong["retention.ms"] = retention_ms
    return wrong


class Commands:
    """Command lines of Kafka's tools for one topic, ready to paste.

    Args:
        settings: arguments of a client of the brokers.
        topic: name of the topic.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        brokers = settings["bootstrap_servers"]
        self._where = ["--bootstrap-server", brokers if isinstance(brokers, str) else ",".join(brokers)]
        if settings.get("security_protocol", "PLAINTEXT") != "PLAINTEXT":
            self._where += ["--command-config", "client.properties"]
        self._topic = topic

    def create(self, replicas: int) -> str:
        """Return the command that creates the topic."""
        configs = [word for name, value in CONFIGS.items() for word in ("--config", f"{name}={value}")]
        sizes = ["--partitions", "1", "--replication-factor", str(replicas)]
        return self._line("kafka-topics.sh", "--create", "--topic", self._topic, *sizes, *configs)

    def alter(self, names: Mapping[str, str]) -> str:
        """Return the command that gives these settings of the topic the values that they have to have."""
        configs = ",".join(f"{name}={CONFIGS[name]}" for name in names)
        return self._line("kafka-configs.sh", "--alter", "--entity-type", "topics", "--entity-name", self._topic, "--add-config", configs)

    def allow(self, *, create: bool) -> str:
        """Return the command that permits what a member does with the topic; the principal is the placeholder `User:NAME`."""
        operations = [*_OPERATIONS, "Create"] if create else _OPERATIONS
        words = [word for operation in operations for word in ("--operation", operation)]
        return self._line("kafka-acls.sh", "--add", "--allow-principal", "User:NAME", *words, "--topic", self._topic)

    def _line(self, tool: str, *words: str) -> str:
        return shlex.join([tool, *self._where, *words])
