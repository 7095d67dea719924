"""Why a connection could not be used."""

import asyncio
import errno
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import BadResponseError
from sluice.admin import AsyncQuotaAdmin, QuotaAdminError
from sluice.broker_client import BrokerClient
from sluice.connect_errors import connect_error
from sluice_cli.admin.port import AdminPort, AdminPortError
from tests.support.ports import free_port
from tests.support.tls.certificates import Authority


@pytest.mark.parametrize(
    ("beginning", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "an HTTP response: this is no Kafka port, but perhaps the admin port"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "a TLS record: this port requires TLS"),
    ],
)
async def test_a_port_of_another_protocol(beginning: bytes, problem: str) -> None:
    """A response of HTTP or TLS is named, with what the port probably is."""
    reader = asyncio.StreamReader()
    reader.feed_data(beginning)
    near, far = socket.socketpair()
    with near, far:
        _, writer = await asyncio.open_connection(sock=near)
        client = BrokerClient(reader, writer, "test")
        with pytest.raises(BadResponseError, match=problem):
            await client.versions()
        await client.close()


async def speaks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer in the clear, whatever arrives."""
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def closes(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close at once, as brokers do with bytes that are no request."""
    writer.transport.abort()


@pytest.mark.parametrize(("serve", "words"), [(speaks, "answers without TLS"), (closes, "does this port use TLS")])
async def test_a_client_with_tls_at_a_port_without(serve: Any, words: str) -> None:
    """TLS to a port without TLS is one sentence that says so, whether the port answers or closes."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncQuotaAdmin(f"127.0.0.1:{port}", ssl_context=ssl.create_default_context()) as admin:
            with pytest.raises(QuotaAdminError, match=words):
                await admin.describe_client_quotas()


async def test_a_certificate_of_an_unknown_authority(tmp_path: Path) -> None:
    """A certificate that is not trusted is one sentence with the remedy."""
    issued = Authority(tmp_path).issue("server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(issued.certificate, issued.key)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with AsyncQuotaAdmin(f"127.0.0.1:{port}", ssl_context=ssl.create_default_context()) as admin:
            with pytest.raises(QuotaAdminError, match=r"its certificate is not trusted .*add its certificate authority"):
                await admin.describe_client_quotas()
        with pytest.raises(AdminPortError, match="name its certificate authority with --admin-ca"):
            await asyncio.to_thread(AdminPort(f"https://127.0.0.1:{port}", None, None).get, "/admin/switches")


async def test_the_admin_client_at_a_kafka_port() -> None:
    """A port that closes without an HTTP response is named as a Kafka port, or one that requires https."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(AdminPortError, match="no HTTP response; is this a Kafka port"):
            await asyncio.to_thread(AdminPort(f"http://127.0.0.1:{port}", None, None).get, "/admin/switches")


async def test_a_port_where_nobody_listens() -> None:
    """A refused connection is said in the system's words."""
    async with AsyncQuotaAdmin(f"127.0.0.1:{free_port()}") as admin:
        with pytest.raises(QuotaAdminError, match=r": Connection refused$"):
            await admin.describe_client_quotas()
    assert connect_error(OSError(errno.EHOSTUNREACH, "words of a library")) == "No route to host"
