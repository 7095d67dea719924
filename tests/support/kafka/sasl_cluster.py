"""A broker whose SASL listener supports every mechanism, its users, and the login settings of each kind of client."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.settings import SASL_USERS, write_properties
from tests.support.kafka.tool_calls import CONFIG_COMMAND

SESSION_MS = 2_000
"""The session lifetime of PLAIN and SCRAM-SHA-256; sessions of other mechanisms last as long as their connection or token."""
PASSWORD = "canary-5f3a9c71"  # noqa: S105 - to be looked for in every output
SCRAM_USER = "scram user=,%"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f'user_{name}="{PASSWORD}"' for name in SASL_USERS)
        + ";"
    ),
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    ),
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": SESSION_MS,
    "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": SESSION_MS,
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def new_cluster(name: str = "kafka-sasl", settings: Mapping[str, str | int] | None = None, *, jmx: bool = False) -> KafkaCluster:
    """Return the broker, not started, with further settings; `jmx`: with its JMX beans."""
    return KafkaCluster(name=name, settings=SETTINGS | dict(settings or {}), jmx=jmx)


def add_scram_users(tools: JavaTools, bootstrap: str, *users: str) -> None:
    """Create SCRAM users with kafka-configs."""
    for user in users:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):  # the broker accepts one credential per call
            where = ("--bootstrap-server", bootstrap, "--alter", "--entity-type", "users", "--entity-name", user)
            tools.run(CONFIG_COMMAND, *where, "--add-config", f"{mechanism}=[iterations=4096,password={PASSWORD}]")


def java_login(directory: Path, mechanism: str, user: str, password: str = PASSWORD) -> Path:
    """Write the properties of a Java client."""
    if mechanism == "OAUTHBEARER":
        jaas = f'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        jaas = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}";'
    path = directory / "login.properties"
    write_properties(path, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas})
    return path


def confluent_login(mechanism: str, user: str, password: str = PASSWORD) -> dict[str, Any]:
    """Return the settings of a confluent-kafka client."""
    base: dict[str, Any] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return base | {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": f"principal={user} lifeSeconds=60"}
    return base | {"sasl.username": user, "sasl.password": password}


def python_login(mechanism: str, user: str, provider: Any, password: str = PASSWORD) -> dict[str, Any]:
    """Return the arguments of an aiokafka or kafka-python client; `provider` makes its bearer tokens."""
    base: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return base | {"sasl_oauth_token_provider": provider}
    return base | {"sasl_plain_username": user, "sasl_plain_password": password}
