"""The settings that the topic of a fleet needs, and the commands that are printed for operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.fleet.bus.topic_needs import CONFIGS, Commands, unsuitable

PLAIN = {"bootstrap_servers": ["a:9092", "b:9092"], "security_protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        pytest.param({}, [], id="as-created"),
        pytest.param({"retention.ms": "60001"}, [], id="a-longer-retention"),
        pytest.param({"segment.ms": "1000", "segment.bytes": "1048576"}, [], id="other-segments"),
        pytest.param({"retention.ms": "59999"}, ["retention.ms"], id="too-short-a-retention"),
        pytest.param({"retention.ms": "-1"}, ["retention.ms"], id="an-unlimited-retention"),
        pytest.param({"cleanup.policy": "compact"}, ["cleanup.policy"], id="compacted"),
        pytest.param({"cleanup.policy": "compact,delete"}, ["cleanup.policy"], id="compacted-and-deleted"),
        pytest.param({"message.timestamp.type": "CreateTime"}, ["message.timestamp.type"], id="times-of-producers"),
    ],
)
def test_settings(changed: dict[str, str], wrong: list[str]) -> None:
    """Only settings that would lose messages, keep them for ever or give them other times are unsuitable."""
    configs = CONFIGS | changed
    assert unsuitable(configs) == {name: configs[name] for name in wrong}


def test_settings_that_are_not_known() -> None:
    """Where nothing is known, nothing is unsuitable."""
    assert unsuitable({}) == {}


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        pytest.param(PLAIN, "--bootstrap-server a:9092,b:9092 ", id="plain"),
        pytest.param({"bootstrap_servers": "a:9092"}, "--bootstrap-server a:9092 ", id="one-text"),
        pytest.param(
            PLAIN | {"security_protocol": "SASL_SSL"},
            "--bootstrap-server a:9092,b:9092 --command-config client.properties ",
            id="with-a-login",
        ),
    ],
)
def test_commands(settings: Mapping[str, Any], where: str) -> None:
    """Each command names the brokers, a file for the login where one is needed, and the topic."""
    commands = Commands(settings, "fleet")
    assert commands.create(3) == (
        f"kafka-topics.sh {where}--create --topic fleet --partitions 1 --replication-factor 3 --config cleanup.policy=delete --config "
        "message.timestamp.type=LogAppendTime --config retention.ms=60000 --config segment.ms=60000 --config segment.bytes=16777216"
    )
    assert commands.alter({"cleanup.policy": "compact", "retention.ms": "-1"}) == (
        f"kafka-configs.sh {where}--alter --entity-type topics --entity-name fleet --add-config cleanup.policy=delete,retention.ms=60000"
    )
    rights = "--operation Read --operation Write --operation Describe --operation DescribeConfigs"
    assert commands.allow(create=False) == f"kafka-acls.sh {where}--add --allow-principal User:NAME {rights} --topic fleet"
    assert (
        commands.allow(create=True) == f"kafka-acls.sh {where}--add --allow-principal User:NAME {rights} --operation Create --topic fleet"
    )
