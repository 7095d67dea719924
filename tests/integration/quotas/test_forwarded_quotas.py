"""`store = "forward"` before a real Kafka: its throttle times are compared with Sluice's, and its limit on Sluice's address prevents the
start.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, QuotaAdmin
from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.kafka.broker import KafkaCluster
from tests.support.patience import until_true
from tests.support.places import ROOT
from tests.support.processes.sluice_process import SluiceFailedError, SluiceProcess

pytestmark = [pytest.mark.kafka, pytest.mark.long]
BOUND = 400_000
BEYOND = 11 * BOUND + 1_000_000
"""A little more than a window lets pass at once."""
FORWARD = '[quotas]\nstore = "forward"\n'


@contextmanager
def kept(kafka: KafkaCluster, parts: Mapping[str, str | None], values: Mapping[str, float]) -> Iterator[None]:
    """Set a quota at the broker, and remove it at the end of the block."""
    entity = ClientQuotaEntity.of(dict(parts))
    with QuotaAdmin(kafka.bootstrap) as admin:
        assert admin.alter_client_quotas([ClientQuotaAlteration(entity, dict(values))]) == {entity: None}
        until_true(lambda: admin.describe_client_quotas().get(entity) == values, "the broker describes it")
        try:
            yield
        finally:
            admin.alter_client_quotas([ClientQuotaAlteration(entity, dict.fromkeys(values))])
            until_true(lambda: entity not in admin.describe_client_quotas(), "the broker has let it go")


def compared(directory: Path, out: Path) -> tuple[int, str, list[dict[str, Any]]]:
    """Run `sluice meter validate --against-broker`; return exit code, text, and the groups of verdict.json."""
    arguments = ["validate", "--in", str(directory), "--against-broker", "--out", str(out)]
    command = [sys.executable, "-m", "sluice_cli", "meter", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr, json.loads((out / "verdict.json").read_text())["against_broker"]


@pytest.mark.timeout(120)
def test_the_brokers_throttles_and_sluices_are_alike(kraft: KafkaCluster, tmp_path: Path) -> None:
    """When a broker throttles by its own quotas, Sluice's throttle times for the producer are alike, and the consumer is reported as
    withheld.

    Every decision of Sluice is replayed as well: `validate` ends with 0.
    """
    topic = new_topic(kraft.bootstrap, "compared", partitions=1)
    (tmp_path / "sluice.toml").write_text(FORWARD + '[metering]\ndir = "metering"\n')
    quotas = {"producer_byte_rate": BOUND, "consumer_byte_rate": BOUND}
    sluice = SluiceProcess(kraft.bootstrap, arguments=("--config", str(tmp_path / "sluice.toml")), name="sluice-compared")
    with kept(kraft, {"client-id": "compared"}, quotas), sluice:
        warm = {"client.id": "warm"}  # otherwise the first request would wait for the time between the broker's samples and Sluice's
        assert confluent.produce(sluice.bootstrap, topic, [b"x"] * 100, settings=warm) == 100
        settings = {"client.id": "compared", "batch.size": 50_000}
        records = BEYOND // 1_000
        assert confluent.produce(sluice.bootstrap, topic, (b"x" * 1_000 for _ in range(records)), settings=settings) == records
        reading = {"client.id": "compared", "fetch.message.max.bytes": 100_000, "fetch.wait.max.ms": 50}
        assert len(confluent.read_all(sluice.bootstrap, topic, 1, reading)) == records + 100
        assert sluice.metric("kafka_sluice_shadow_answers_total", quota_type="Produce", by="both") > 0
        assert sluice.stop() == 0
    code, text, groups = compared(tmp_path / "metering", tmp_path / "out")
    print(text)
    assert code == 0, text
    by_type = {one["quota_type"]: one for one in groups}
    produce, fetch = by_type["Produce"], by_type["Fetch"]
    assert (produce["group"], produce["node"], produce["verdict"]) == ("client-id compared", "1", "alike")
    assert (fetch["group"], fetch["node"], fetch["verdict"]) == ("client-id compared", "1", "withheld")
    assert produce["both"] > 0
    assert fetch["both"] + fetch["broker_only"] > 0


def test_a_limit_of_the_broker_on_sluices_own_address_is_no_start(kraft: KafkaCluster, tmp_path: Path) -> None:
    """A broker's connection limit on Sluice's own address ends the start with one line and exit code 2; one on another address does not."""
    (tmp_path / "sluice.toml").write_text(FORWARD)

    def sluice(name: str) -> SluiceProcess:
        return SluiceProcess(kraft.bootstrap, arguments=("--config", str(tmp_path / "sluice.toml")), name=name)

    for address in ("127.0.0.1", None):
        process = sluice(f"sluice-limited-{address}")
        with kept(kraft, {"ip": address}, {"connection_creation_rate": 1_000}), pytest.raises(SluiceFailedError):
            process.start()
        assert process.exit_code == 2
        [line] = [line for line in process.output().splitlines() if "connection_creation_rate" in line]
        assert "quotas.store" in line
        assert "Sluice's address 127.0.0.1" in line
    with kept(kraft, {"ip": "127.0.0.9"}, {"connection_creation_rate": 1_000}), sluice("sluice-not-limited") as process:
        assert process.is_ready()
