"""The connection of a topic source: kafka-python with the settings of Kafka's client properties.

The path of the file is passed to the workers, and not its content, so that no password is in a plan, a checkpoint or a task.
"""

import threading
from pathlib import Path
from typing import Any, Final

from protocol.sasl.mechanisms import PLAIN
from sluice.client_properties import read_client_properties
from sluice.login import Login

BOOTSTRAP_MS: Final = 10_000
PROTOCOL: Final = (2, 1)  # supported by brokers from 2.1 to 4.x, so no version request is needed
POLL_MS: Final = 500
ANSWER_S: Final = 30


class Consumer:
    """A consumer without a group, as a context manager that closes it.

    Args:
        servers: HOST:PORT,...
        properties: path of a file of client properties on this machine; empty: neither TLS nor a login.

    Raises:
        ClientPropertiesError: the file cannot be used.
    """

    def __init__(self, servers: str, properties: str = "") -> None:
        from kafka import KafkaConsumer

        self._consumer = KafkaConsumer(
            bootstrap_servers=servers.split(","),
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_MS,
            api_version=PROTOCOL,
            bootstrap_timeout_ms=BOOTSTRAP_MS,
            **(security_of(properties) if properties else {}),
        )

    def __enter__(self) -> Any:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def partitions_of(consumer: Any, topic: str) -> list[int]:
    """Return the numbers of the partitions; [] when there is no such topic.

    Raises:
        TimeoutError: no answer within 30 s. The library would wait without an end, for example for a login that is refused.
    """
    found: list[set[int]] = []
    asking = threading.Thread(target=lambda: found.append(consumer.partitions_for_topic(topic)), daemon=True)
    asking.start()
    asking.join(ANSWER_S)
    if not found:
        raise TimeoutError(f"KafkaTimeoutError: no answer about {topic} within {ANSWER_S} s")
    return sorted(found[0])


def security_of(properties: str) -> dict[str, Any]:
    """Return the settings of kafka-python for TLS and login.

    Raises:
        ClientPropertiesError: the file cannot be used.
    """
    settings = read_client_properties(Path(properties))
    protocol = ("SASL_" if settings.login else "") + ("SSL" if settings.ssl_context else "PLAINTEXT")
    found: dict[str, Any] = {"security_protocol": protocol}
    if settings.ssl_context is not None:
        found["ssl_context"] = settings.ssl_context
    if settings.login is not None:
        found |= _login_of(settings.login)
    return found


def _login_of(login: Login) -> dict[str, Any]:
    if login.username:
        user = login.username if login.mechanism == PLAIN else login.username.replace("=", "=3D").replace(",", "=2C")  # as RFC 5802 says
        return {"sasl_mechanism": login.mechanism, "sasl_plain_username": user, "sasl_plain_password": login.reveal()}
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Token(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return login.reveal()

    return {"sasl_mechanism": login.mechanism, "sasl_oauth_token_provider": Token()}
