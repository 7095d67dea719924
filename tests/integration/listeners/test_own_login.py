"""Sluice's own logins at a real broker: topology before the first client, internal topics, and a refusal that affects no client."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.messages.metadata import metadata_request, read_topology
from proxy.base.host_port import HostPort, read_host_port
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.model import Upstream
from proxy.config.sections.login import Credentials
from proxy.net.upstream.login import LoginFailedError, ask_as
from tests.support.clients.bearer_tokens import Tokens
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
METADATA_V9 = API_VERSIONS[ApiKey.METADATA << 16 | 9]


def write_secret(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def config_with(directory: Path, upstream: str, tables: str) -> Path:
    """Write a configuration; flags give the listener address."""
    path = directory / "sluice.toml"
    path.write_text(f'[upstream]\nbootstrap = "{upstream}"\n[[listener]]\naddress = "127.0.0.1:1"\n{tables}\n[log]\nlevel = "debug"\n')
    return path


def sluice_with(directory: Path, upstream: str, tables: str, name: str) -> SluiceProcess:
    return SluiceProcess(upstream, arguments=("--config", str(config_with(directory, upstream, tables))), name=name)


def logins(sluice: SluiceProcess) -> dict[str, dict[str, Any]]:
    """Return the state of Sluice's own accounts in /readyz."""
    return {login["name"]: login for login in json.loads(sluice.get("/readyz")[1])["logins"]}


def scram(user: str) -> str:
    return f'mechanism = "SCRAM-SHA-256"\nusername = {json.dumps(user)}\npassword_file = "password"\n'


def test_topology_is_learned_early(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """With SCRAM credentials Sluice binds the broker's port before the first client, and /readyz says that the login works."""
    write_secret(tmp_path / "password", sasl.PASSWORD)
    tables = f"[upstream.credentials]\n{scram(sasl.SCRAM_USER)}[canary]\n{scram('alice')}"
    with sluice_with(tmp_path, sasl_kafka.sasl_bootstrap, tables, "sluice-early") as sluice:
        until_true(lambda: sluice.events("broker_port_bound"))
        assert json.loads(sluice.get("/connections")[1])["open"] == 0
        assert sluice.events("connection_closed") == []
        said = logins(sluice)
        assert (said["upstream.credentials"]["state"], said["canary"]["state"]) == ("works", "untried")
        assert [event["event"] for event in sluice.events() if event["event"].startswith("own_login")] == ["own_login_works"]
        assert sasl.PASSWORD not in sluice.output() + sluice.get("/readyz")[1]


def test_without_credentials_it_says_what_they_would_bring(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """Without credentials Sluice is ready, and /readyz names the features that credentials would enable."""
    with sluice_with(tmp_path, sasl_kafka.sasl_bootstrap, "", "sluice-no-account") as sluice:
        said = logins(sluice)["upstream.credentials"]
        assert sluice.is_ready()
        assert sluice.events("broker_port_bound") == []
    assert said["state"] == "missing"
    assert said["enables"] == ["early topology", "topic store", "forward mode", "metering topic"]


def test_a_wrong_password_affects_no_client(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """A wrong password of Sluice's account is one log line and a state in /readyz, clients still produce, and a corrected one works at
    once.
    """
    password = write_secret(tmp_path / "password", sasl.PASSWORD + "-wrong")
    topic = new_topic(sasl_kafka.bootstrap, "own-login")
    with sluice_with(tmp_path, sasl_kafka.sasl_bootstrap, f"[upstream.credentials]\n{scram('alice')}", "sluice-refused") as sluice:
        until_true(lambda: logins(sluice)["upstream.credentials"]["state"] == "refused")
        until_true(lambda: sluice.events("own_login_failed"))
        (line,) = sluice.events("own_login_failed")
        assert line["problem"] == "the broker refused SCRAM-SHA-256 (error 58): check that the user exists and that the password is right"
        assert sluice.is_ready()
        produce(sluice.bootstrap, topic)
        write_secret(password, sasl.PASSWORD)
        until_true(lambda: logins(sluice)["upstream.credentials"]["state"] == "works")
        assert len(sluice.events("own_login_failed")) == 1
        assert sasl.PASSWORD not in sluice.output()


def produce(bootstrap: str, topic: str) -> None:
    """Send one record as bob."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **sasl.confluent_login("PLAIN", "bob")})
    producer.produce(topic, b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
    assert (producer.flush(30), failures) == (0, [])


def accounts(directory: Path) -> dict[str, Credentials]:
    """Return an account for each mechanism."""
    password = write_secret(directory / "password", sasl.PASSWORD)
    names = {"PLAIN": "alice", "SCRAM-SHA-256": sasl.SCRAM_USER, "SCRAM-SHA-512": "alice"}
    with_password = {one: Credentials(mechanism=one, username=name, password_file=password) for one, name in names.items()}  # type: ignore[arg-type]
    token = write_secret(directory / "token", Tokens("etl").token())
    return {**with_password, "OAUTHBEARER": Credentials(mechanism="OAUTHBEARER", token_file=token)}


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
async def test_one_request_as_another_user(mechanism: str, sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """With each mechanism a request on a new connection returns its response, and with a wrong password no request is sent."""
    where = sasl_address(sasl_kafka)
    account = accounts(tmp_path)[mechanism]
    question = metadata_request(9, 77, "canary", all_topics=False)
    answer = await ask_as(account, question, where, None, 10_000)
    assert [broker.port for broker in read_topology(METADATA_V9, answer).brokers] == [where.port]
    write_secret(tmp_path / ("token" if mechanism == "OAUTHBEARER" else "password"), "wrong")
    with pytest.raises(LoginFailedError, match=r"error 58|rejected the token"):
        await ask_as(account, question, where, None, 10_000)
    with pytest.raises(OSError, match="closed the connection"):
        await ask_as(None, question, where, None, 10_000)


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
async def test_topics_of_our_own_behind_a_login(mechanism: str, sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """The Kafka client that writes the metering topic logs in with the same account."""
    topic = await asyncio.to_thread(new_topic, sasl_kafka.bootstrap, f"own-{mechanism.lower()}")
    upstream = Upstream(bootstrap=(sasl_address(sasl_kafka),), credentials=accounts(tmp_path)[mechanism])
    async with AIOKafkaProducer(**kafka_client_settings(upstream)) as producer:
        assert (await producer.send_and_wait(topic, b"x")).offset == 0


def sasl_address(kafka: KafkaCluster) -> HostPort:
    return read_host_port(kafka.sasl_bootstrap)
