"""`--command-config`, of `sluice quotas` and `sluice meter stream`, logs in at a real broker with the same file as Kafka's own tools."""

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pipeline.errors import BadInputError
from pipeline.spark.stream.topic_source import TopicReader
from pipeline.stream.settings import StreamSettings, check_settings
from sluice.admin import QuotaAdmin, QuotaAdminError
from sluice.client_properties import read_client_properties
from tests.support.clients import confluent
from tests.support.clients.topic_source import read_all
from tests.support.clients.topics import new_topic
from tests.support.kafka import sasl_cluster as sasl
from tests.support.kafka.broker import KafkaCluster
from tests.support.places import ROOT

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
def test_every_mechanism_logs_in(sasl_kafka: KafkaCluster, tmp_path: Path, mechanism: str) -> None:
    """With every mechanism the settings of Kafka's client.properties log in, and the broker answers a request for quotas."""
    user = sasl.SCRAM_USER if mechanism.startswith("SCRAM") else "alice"
    settings = read_client_properties(sasl.java_login(tmp_path, mechanism, user))
    with QuotaAdmin(sasl_kafka.sasl_bootstrap, login=settings.login) as admin:
        assert isinstance(admin.describe_client_quotas(), dict)


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
def test_the_source_of_a_stream_logs_in_with_every_mechanism(sasl_kafka: KafkaCluster, tmp_path: Path, mechanism: str) -> None:
    """It reads all messages that were there when it began, in batches of at most the number that was asked for, over all partitions."""
    topic = new_topic(sasl_kafka.bootstrap, "source", partitions=2)
    values = [b"%d" % number for number in range(20)]
    assert confluent.produce(sasl_kafka.bootstrap, topic, values) == len(values)
    path = sasl.java_login(tmp_path, mechanism, sasl.SCRAM_USER if mechanism.startswith("SCRAM") else "alice")
    reader = TopicReader(sasl_kafka.sasl_bootstrap, topic, str(path), messages_max=7)
    batches = read_all(reader)
    assert sorted(value for batch in batches for value in batch) == sorted(values)
    assert [len(batch) for batch in batches] == [7, 7, 6]
    assert confluent.produce(sasl_kafka.bootstrap, topic, values) == len(values)
    assert sum(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()).values()) == len(values)


def test_a_stream_does_not_start_without_the_login(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """A refused password, a missing file and a listener that wants a login are one line each, before Spark starts."""
    source = f"kafka://{sasl_kafka.sasl_bootstrap}/metering"
    wrong = sasl.java_login(tmp_path, "PLAIN", "alice", "wrong-8d1f")
    for properties, said in (
        (wrong, "the login was refused"),
        (tmp_path / "none.properties", "--command-config .*cannot be read"),
        (None, "does this listener want TLS or a login"),
    ):
        with pytest.raises(BadInputError, match=said) as caught:
            check_settings(StreamSettings(source, tmp_path / "c", tmp_path / "o", properties=properties))
        assert ("\n" in str(caught.value), "wrong-8d1f" in str(caught.value)) == (False, False)


def test_a_wrong_password_is_one_line_without_it(sasl_kafka: KafkaCluster, tmp_path: Path) -> None:
    """A wrong password is one line that does not contain the password, and the command exits with code 1."""
    path = sasl.java_login(tmp_path, "SCRAM-SHA-256", "alice", "wrong-8d1f")
    settings = read_client_properties(path)
    with (
        QuotaAdmin(sasl_kafka.sasl_bootstrap, login=settings.login) as admin,
        pytest.raises(QuotaAdminError, match="that the password is right"),
    ):
        admin.describe_client_quotas()
    command = [
        sys.executable,
        "-m",
        "sluice_cli",
        "quotas",
        "describe",
        "--bootstrap-server",
        sasl_kafka.sasl_bootstrap,
        "--command-config",
        str(path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n"), "wrong-8d1f" in done.stderr) == (1, 1, False)


def test_without_a_login_the_line_says_what_may_be_missing(sasl_kafka: KafkaCluster) -> None:
    """Without a login the broker closes the connection, and the error line says what may be missing."""
    with QuotaAdmin(sasl_kafka.sasl_bootstrap) as admin, pytest.raises(QuotaAdminError, match="does this listener want TLS or a login"):
        admin.describe_client_quotas()
