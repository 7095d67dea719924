"""Settings of Sluice's own Kafka clients."""

import ssl
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer

from proxy.base.host_port import HostPort
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.model import Upstream
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.login import Credentials
from proxy.config.sections.tls import UpstreamTls
from tests.support.tls.certificates import Authority

SECRET = "canary-77b1"  # noqa: S105 - no real secret
BROKERS = (HostPort("127.0.0.1", 9092), HostPort("::1", 9093))


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return a file with a password or token."""
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text(SECRET)
    return path


def test_plain_connections_and_no_login() -> None:
    """Without TLS and login the settings have only the broker addresses and the protocol."""
    assert kafka_client_settings(Upstream(bootstrap=BROKERS)) == {
        "bootstrap_servers": ["127.0.0.1:9092", "[::1]:9093"],
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_aiokafka_takes_every_login(mechanism: str, secret: Path, tmp_path: Path) -> None:
    """aiokafka accepts the settings of each mechanism, and a token is read anew for each login."""
    tls = UpstreamTls(ca=Authority(tmp_path, "ca").file)
    bearer = mechanism == "OAUTHBEARER"
    where = {"token_file": secret} if bearer else {"username": "sluice", "password_file": secret}
    settings = kafka_client_settings(Upstream(bootstrap=BROKERS, tls=tls, credentials=Credentials(mechanism=mechanism, **where)))
    assert settings["security_protocol"] == "SASL_SSL"
    AIOKafkaProducer(**settings)
    if bearer:
        token = settings["sasl_oauth_token_provider"].token
        assert (await token(), secret.write_text("another"), await token()) == (SECRET, 7, "another")  # noqa: ASYNC240
    else:
        assert settings["sasl_plain_password"] == SECRET


def test_the_name_in_certificates_is_the_configured_one(tmp_path: Path) -> None:
    """With `server_name` the broker's certificate is verified for that name."""
    tls = UpstreamTls(ca=Authority(tmp_path, "ca").file, server_name="kafka.example.org")
    context = kafka_client_settings(Upstream(bootstrap=BROKERS, tls=tls))["ssl_context"]
    wrapped = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=False, server_hostname="127.0.0.1")
    assert wrapped.server_hostname == "kafka.example.org"


def test_a_secret_that_is_gone_is_named(tmp_path: Path) -> None:
    """A missing secret file is reported with its path."""
    credentials = Credentials(mechanism="PLAIN", username="sluice", password_file=tmp_path / "absent")
    with pytest.raises(CredentialsError, match=r"password_file: .*absent cannot be read"):
        kafka_client_settings(Upstream(bootstrap=BROKERS, credentials=credentials))
