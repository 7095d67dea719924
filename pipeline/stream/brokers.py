"""Checks that a broker accepts the connection of a topic source. A Kafka client would retry without a message."""

import asyncio
import ssl
from pathlib import Path
from typing import Final

from pipeline.errors import BadInputError
from protocol.errors import ProtocolError
from protocol.messages.metadata import metadata_request
from protocol.sasl.client import TokenRefusedError
from sluice.broker_client import BrokerClient, run_login
from sluice.client_properties import ClientPropertiesError, ClientSettings, read_client_properties
from sluice.connect_errors import connect_error

CONNECT_S: Final = 10.0
_NAME: Final = "sluice-meter"
_METADATA_VERSION: Final = 4
"""Supported by brokers from 0.11 to 4.x."""
_PLAINTEXT: Final = ClientSettings(None, None, None, None, ())


def check_brokers(source: str, servers: str, properties: Path | None) -> None:
    """Connect to one server, with TLS and login where the file of client properties says so.

    Args:
        source: the source, for the message.
        servers: HOST:PORT,...
        properties: file of Kafka's client properties.

    Raises:
        BadInputError: the file cannot be used, no server answers, or all refuse.
    """
    settings = settings_of(properties)
    problems = []
    for server in servers.split(","):
        problem = asyncio.run(_problem(server, settings))
        if problem is None:
            return
        problems.append(f"{server}: {problem}")
    raise BadInputError(f"{source}: no broker answers there ({'; '.join(problems)})")


def settings_of(properties: Path | None) -> ClientSettings:
    """Return the settings of a file.

    Raises:
        BadInputError: it cannot be used.
    """
    if properties is None:
        return _PLAINTEXT
    try:
        return read_client_properties(properties)
    except ClientPropertiesError as error:
        raise BadInputError(f"--command-config {error}") from error


async def _problem(server: str, settings: ClientSettings) -> str | None:
    """Return why a server cannot be used; None: it can."""
    host, _, port = server.rpartition(":")
    try:
        async with asyncio.timeout(CONNECT_S):
            await _log_in(host.strip("[]"), int(port), settings)
    except TimeoutError:
        return f"no answer within {CONNECT_S:.0f} s"
    except asyncio.IncompleteReadError:
        return "the connection was closed; does this listener want TLS or a login? (--command-config)"
    except TokenRefusedError as error:
        return f"the login was refused: {error}"
    except (OSError, ssl.SSLError) as error:
        return connect_error(error, tls=settings.ssl_context is not None)
    except (ProtocolError, ValueError, OverflowError) as error:
        return str(error)
    return None


async def _log_in(host: str, port: int, settings: ClientSettings) -> None:
    client = BrokerClient(*await asyncio.open_connection(host, port, ssl=settings.ssl_context), _NAME)
    try:
        await client.versions()
        if settings.login is not None:
            await run_login(client, settings.login.steps(_NAME))
        await client.ask(metadata_request(_METADATA_VERSION, 2, _NAME, all_topics=False))  # the broker refuses it before a login
    finally:
        await client.close()
