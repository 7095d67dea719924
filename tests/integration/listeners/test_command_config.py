"""`sluice quotas --command-config` logs in at a real broker with the same file as Kafka's own tools."""

import subprocess
import sys
from pathlib import Path

import pytest

from sluice.admin import QuotaAdmin, QuotaAdminError
from sluice.client_properties import read_client_properties
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
