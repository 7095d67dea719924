"""TLS connections from clients and to brokers, through the whole proxy."""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Upstream
from proxy.config.sections.credentials import TlsFiles, server_context
from proxy.config.sections.tls import UpstreamTls
from proxy.tls import contexts, handshakes
from proxy.tls import transport as tls_transport
from proxy.tls.handshakes import UNDER_WAY_MAX
from quota.entity import ClientQuotaEntity, ClientQuotaType, KafkaPrincipal
from sluice.principal import AuthenticationContext, PrincipalBuilder
from tests.support.frames import sasl_frames
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import BrokerConnection, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import PRODUCE, Request, metadata_request, produce_answer, produce_request, throttle_ms_of
from tests.support.scripted.scripted_sockets import HOST, guarded, until
from tests.support.scripted.scripted_tls import ScriptedTls
from tests.support.tls import sasl_tokens
from tests.support.tls.certificates import Authority, Files
from tests.support.tls.tls_fixture import ProxyFixture, TlsClient

ALICE = {ClientQuotaType.PRODUCE: {ClientQuotaEntity("alice", None): 10_000.0}}


async def refused(proxy: ProxyFixture, port: int, own: Files | None) -> None:
    """Check that a connection is refused; with TLS 1.3 a client notices only at its first request."""

    async def ask() -> None:
        await (await proxy.connect(port, own)).ask(metadata_request(1))

    with pytest.raises((ssl.SSLError, OSError, asyncio.IncompleteReadError)):
        await ask()


@pytest.fixture
def proxy(tmp_path: Path) -> ProxyFixture:
    """Return TLS files of one certificate authority."""
    return ProxyFixture(tmp_path)


async def test_a_client_by_tls_is_served_and_learns_sluices_ports(proxy: ProxyFixture) -> None:
    """The bootstrap port and a broker's port accept TLS, and Metadata responses name Sluice's ports."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(proxy.listener(),), clean=False) as sluice:
        client = await proxy.connect(sluice.port)
        assert sluice.broker_port(1).to_bytes(4, "big") in await client.ask(metadata_request(3))
        await client.close()
        at_broker = await proxy.connect(sluice.broker_port(1))
        big = bytes(700_000)
        assert await at_broker.ask(produce_request(4, big)) == produce_answer(9, 4)
        assert broker.connections[-1].requests[-1].frame == produce_request(4, big)
        await at_broker.close()
        await sluice.until_closed("client_closed", 2)
        await until(lambda: not sluice.gateway._closing)


async def test_the_subject_of_a_certificate_is_the_user(proxy: ProxyFixture) -> None:
    """With mTLS the mapping rules turn the certificate's subject into the user, and only that user's quota applies."""
    listener = proxy.listener(client_auth="required", client_ca=proxy.authority.file, principal_mapping_rules="RULE:^CN=(.*)$/$1/L")
    bob = proxy.authority.issue("bob")
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", table=ALICE, listeners=(listener,), clean=False) as sluice:
        for own, is_held in ((proxy.alice, True), (bob, False)):
            client = await proxy.connect(sluice.broker_port(1), own)
            answer = await client.ask(produce_request(1, bytes(105_000)))
            assert (throttle_ms_of(PRODUCE, 9, answer) > 0) == is_held
            (connection,) = sluice.connections
            assert str(connection.session.principal) == ("User:alice" if is_held else "User:bob")
            await client.close()
            await sluice.until_connections(0)


class Reported(PrincipalBuilder):
    """Records the contexts that it is called with."""

    contexts: ClassVar[list[AuthenticationContext]] = []

    def build(self, context: AuthenticationContext) -> KafkaPrincipal:
        self.contexts.append(context)
        return KafkaPrincipal("User", "reported")


@pytest.mark.parametrize("piece", [3, 100_000])
async def test_a_login_inside_tls(proxy: ProxyFixture, piece: int) -> None:
    """A token that arrives by TLS is read into the login buffer, and neither that buffer nor TLS's keeps any of it."""
    listener = msgspec.structs.replace(proxy.listener(), protocol="SASL_SSL")
    async with ScriptedBroker(lets_in) as broker, open_gateway(broker, listeners=(listener,), clean=False) as sluice:
        client = await proxy.connect(sluice.port)
        await client.ask(sasl_frames.handshake("PLAIN"))
        (connection,) = await sluice.until_connections(1)
        login = connection.client._login
        assert login is not None
        token = sasl_frames.authenticate(sasl_tokens.plain("alice", "canary-in-tls" * 400))
        for at in range(0, len(token) - 1, piece):
            client.writer.write(token[at : min(at + piece, len(token) - 1)])
            await client.writer.drain()
        assert await client.ask(token[-1:]) == sasl_frames.authenticate_answer(2)
        assert broker.connections[0].requests[-1].frame == token
        assert connection.session.principal == KafkaPrincipal("User", "alice")
        assert not any(login._buffer)
        assert b"canary" not in bytes(tls_transport._plain)
        assert await client.ask(produce_request(4)) == produce_answer(9, 4)
        await client.close()


async def lets_in(connection: BrokerConnection, asked: Request) -> None:
    """Accept every login."""
    if asked.key == 17:
        await connection.send(sasl_frames.handshake_answer(asked.correlation_id))
    elif asked.key == 36:
        await connection.send(sasl_frames.authenticate_answer(asked.correlation_id))
    else:
        await connection.answer(asked)


async def test_a_principal_builder_receives_what_tls_knows(proxy: ProxyFixture) -> None:
    """A principal builder receives the protocol, the server name, the certificate and the name of its subject."""
    listener = proxy.listener(client_auth="required", client_ca=proxy.authority.file)
    listener = msgspec.structs.replace(listener, principal_builder=f"{__name__}:Reported")
    Reported.contexts.clear()
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(listener,), clean=False) as sluice:
        context = proxy.context(proxy.alice)
        context.check_hostname = False
        streams = await guarded(asyncio.open_connection(HOST, sluice.port, ssl=context, server_hostname="kafka.example.org"))
        client = TlsClient(*streams)
        await client.ask(metadata_request(1))
        (connection,) = sluice.connections
        assert str(connection.session.principal) == "User:reported"
        await client.close()
    (reported,) = Reported.contexts
    assert (reported.protocol, reported.sni, reported.name) == ("SSL", "kafka.example.org", "CN=alice")
    assert reported.certificate == ssl.PEM_cert_to_DER_cert(proxy.alice.certificate.read_text())


async def test_who_shows_no_certificate_or_a_strange_one_is_refused(proxy: ProxyFixture, tmp_path: Path) -> None:
    """With `client_auth = "required"` a missing certificate or one of another authority fails the handshake."""
    (tmp_path / "strange").mkdir()
    strange = Authority(tmp_path / "strange", "nobody").issue("alice")
    listener = proxy.listener(client_auth="required", client_ca=proxy.authority.file)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(listener,), clean=False) as sluice:
        for own in (None, strange):
            await refused(proxy, sluice.port, own)
        await sluice.until_closed("tls_handshake", 2)
        assert not broker.connections


async def test_a_subject_that_no_rule_fits_is_refused(proxy: ProxyFixture) -> None:
    """A client whose subject no mapping rule matches is closed with `no_principal`, as in Kafka."""
    listener = proxy.listener(client_auth="required", client_ca=proxy.authority.file, principal_mapping_rules="RULE:^OU=(.*)$/$1/")
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(listener,), clean=False) as sluice:
        await refused(proxy, sluice.port, proxy.alice)
        await sluice.until_closed("no_principal")


async def test_requested_lets_in_who_has_none(proxy: ProxyFixture) -> None:
    """With `client_auth = "requested"` a client without a certificate is ANONYMOUS, and one with a certificate is its subject."""
    listener = proxy.listener(client_auth="requested", client_ca=proxy.authority.file)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(listener,), clean=False) as sluice:
        for own, principal in ((None, "User:ANONYMOUS"), (proxy.alice, "User:CN=alice")):
            client = await proxy.connect(sluice.port, own)
            await client.ask(metadata_request(1))
            (connection,) = sluice.connections
            assert str(connection.session.principal) == principal
            await client.close()
            await sluice.until_connections(0)


async def test_d10_what_is_no_tls_gets_one_reason(proxy: ProxyFixture) -> None:
    """Plain text on a TLS port closes with `not_tls`, a silent client at the deadline, and both free their slots."""
    limits = {"tls_handshake_ms": 600}
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(proxy.listener(),), limits=limits, serves=False) as sluice:
        for first in (metadata_request(1), b"GET / HTTP/1.1\r\n\r\n"):
            client = await sluice.client()
            await client.send(first)
            await client.read_to_end()
        await sluice.until_closed("not_tls", 2)
        silent = await sluice.client()
        await silent.read_to_end()
        await sluice.until_closed("tls_handshake_deadline")
        assert not broker.connections
        assert sluice.listeners[0].admission.quota.connections == 0


async def test_a_new_certificate_needs_no_restart_and_a_bad_one_changes_nothing(proxy: ProxyFixture) -> None:
    """A reload serves the new certificate to new connections, open ones stay, and an invalid certificate is not used."""
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(proxy.listener(),), clean=False) as sluice:
        before = await proxy.connect(sluice.port)
        serial = before.writer.get_extra_info("peercert")["serialNumber"]
        proxy.authority.issue("server", hosts=(HOST,))
        assert await sluice.reload()
        after = await proxy.connect(sluice.port)
        renewed = after.writer.get_extra_info("peercert")["serialNumber"]
        assert renewed != serial
        proxy.server.certificate.write_text("rubbish")
        await sluice.reload()
        again = await proxy.connect(sluice.port)
        assert again.writer.get_extra_info("peercert")["serialNumber"] == renewed
        for client in (before, after, again):
            await client.ask(metadata_request(1))
            await client.close()


def rejected(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the logged problems of rejected certificates."""
    return [record.fields["problem"] for record in caplog.records if record.message == "certificate_rejected"]  # type: ignore[attr-defined]


async def test_a_certificate_that_changes_is_taken_over_by_itself(
    proxy: ProxyFixture, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A changed certificate is loaded without a reload and its expiry metric follows; an expired one is rejected."""
    monkeypatch.setattr(contexts, "REFRESH_S", 0.05)
    caplog.set_level(logging.INFO)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(proxy.listener(),), clean=False) as sluice:
        before = await proxy.connect(sluice.port)
        (ends,) = sluice.counters.certificate_expiries_s.values()
        proxy.authority.issue("server", hosts=(HOST,), days=60)
        await until(lambda: sluice.counters.certificate_expiries_s["listener.test"] > ends)
        assert "certificate_reloaded" in caplog.text
        renewed = (await proxy.connect(sluice.port)).writer.get_extra_info("peercert")["serialNumber"]
        proxy.authority.issue("server", hosts=(HOST,), days=-1, since_days=9)
        await until(lambda: any("ended on" in problem for problem in rejected(caplog)))  # a file without its new key may be rejected first
        after = await proxy.connect(sluice.port)
        assert after.writer.get_extra_info("peercert")["serialNumber"] == renewed
        for client in (before, after):
            await client.ask(metadata_request(1))
            await client.close()


@pytest.mark.parametrize("end", ["close_notify", "fin"])
@pytest.mark.parametrize("queued_bytes", [4_096, 3_000_000])
async def test_d02_a_muted_client_that_leaves_loses_nothing(proxy: ProxyFixture, queued_bytes: int, end: str) -> None:
    """All requests of a muted client that closes, by close_notify or by FIN alone, reach the broker."""
    everybody = {ClientQuotaType.PRODUCE: {ClientQuotaEntity(None, "<default>"): 1_000_000.0}}
    async with (
        ScriptedBroker() as broker,
        open_gateway(broker, mode="mute", table=everybody, listeners=(proxy.listener(),), clean=False) as sluice,
    ):
        client = ScriptedTls(await sluice.client(sluice.broker_port(1)), proxy.context(), HOST)
        await client.shake_hands()
        assert throttle_ms_of(PRODUCE, 9, await client.ask(produce_request(1, bytes(11_200_000)))) > 0
        (connection,) = sluice.connections
        assert connection.client.pauses
        frames = [produce_request(number, bytes(queued_bytes // 8), version=8, acks=0) for number in range(2, 10)]
        sending = asyncio.create_task(client.send(b"".join(frames)))
        if end == "close_notify":
            await sending
            await client.notify_close()
        await sending
        client.client.half_close()
        sluice.set_quotas({})  # else the queued 3 MB would be throttled for a while
        await until(lambda: len(broker.connections[-1].requests) == 9)
        assert [request.frame for request in broker.connections[-1].requests[1:]] == frames
        client.client.close()
        await sluice.until_connections(0)


async def stall(sluice: RunningGateway, proxy: ProxyFixture, how: str) -> ScriptedClient:
    """Return a client whose handshake stops before its first byte, in the middle of its hello, or after it."""
    client = await sluice.client()
    hello = ScriptedTls(client, proxy.context(), HOST).next_words()
    await client.send({"silent": b"", "half a hello": hello[:100], "hello": hello}[how])
    return client


@pytest.mark.parametrize("how", ["silent", "half a hello", "hello"])
async def test_e12_stalled_handshakes_keep_no_client_out(proxy: ProxyFixture, how: str) -> None:
    """While handshakes stall another client is served, and each stalled one is closed at its deadline and frees its slot."""
    count = 3 * UNDER_WAY_MAX // 2
    async with (
        ScriptedBroker() as broker,
        open_gateway(broker, listeners=(proxy.listener(),), limits={"tls_handshake_ms": 1_500}, clean=False) as sluice,
    ):
        stalled = [await stall(sluice, proxy, how) for _ in range(count)]
        good = await proxy.connect(sluice.port)
        assert await good.ask(produce_request(4)) == produce_answer(9, 4)
        assert sluice.closes.get("tls_handshake_deadline", 0) < count, "the good one did not wait for them to go"
        await sluice.until_closed("tls_handshake_deadline", count)
        for client in stalled:
            await client.read_to_end()
        assert sluice.counters.upstream_connects == 1
        assert sluice.listeners[0].admission.quota.connections == 1
        await good.close()


async def test_e12_a_crowd_that_stalls_after_its_hello_is_thinned_out(proxy: ProxyFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond `UNDER_WAY_MAX` handshakes under way, those that are silent for longest are closed when others arrive."""
    monkeypatch.setattr(handshakes, "STALLED_S", 0.0)
    async with ScriptedBroker() as broker, open_gateway(broker, listeners=(proxy.listener(),), clean=False) as sluice:
        for _ in range(UNDER_WAY_MAX + 10):
            await stall(sluice, proxy, "hello")
        await sluice.until_closed("tls_handshake_deadline", 9)
        good = await proxy.connect(sluice.port)
        assert await good.ask(produce_request(4)) == produce_answer(9, 4)
        await good.close()


@contextlib.asynccontextmanager
async def tls_front(broker: ScriptedBroker, context: ssl.SSLContext) -> AsyncIterator[int]:
    """Run a TLS server before a scripted broker and yield its port."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(HOST, broker.port)
        await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))

    server = await asyncio.start_server(serve, HOST, 0, ssl=context)
    yield server.sockets[0].getsockname()[1]
    server.close()


async def test_brokers_are_met_by_tls(proxy: ProxyFixture) -> None:
    """Sluice verifies the broker's certificate, shows its own, and forwards requests and responses by TLS."""
    own = proxy.authority.issue("sluice")
    context = server_context(TlsFiles(proxy.server.certificate, proxy.server.key, ca=proxy.authority.file), "required", time.time())
    async with ScriptedBroker() as broker, tls_front(broker, context) as port:
        tls = UpstreamTls(ca=proxy.authority.file, certificate=own.certificate, key=own.key)
        upstream = Upstream(bootstrap=(HostPort(HOST, port),), tls=tls)
        async with open_gateway(broker, upstream=upstream, probed=False, clean=False) as sluice:
            await until(lambda: sluice.app.prober.answered_ms is not None)
            client: ScriptedClient = await sluice.client()
            assert await client.ask(produce_request(4, bytes(500_000))) == produce_answer(9, 4)
            client.close()
            await sluice.until_closed("client_closed")


@pytest.mark.parametrize("server_name", [None, "kafka.example.org"])
async def test_brokers_receive_the_name_that_sluice_wants(proxy: ProxyFixture, tmp_path: Path, server_name: str | None) -> None:
    """The TLS hello to a broker carries `server_name`, or else the host, and the broker's certificate is verified for that name."""
    (tmp_path / "named").mkdir()
    named = Authority(tmp_path / "named", "named")
    files = named.issue("broker", hosts=("localhost", "kafka.example.org"))
    context = server_context(TlsFiles(files.certificate, files.key), "none", time.time())
    reported: list[str | None] = []
    context.sni_callback = lambda _tls, name, _context: reported.append(name)
    async with ScriptedBroker() as broker, tls_front(broker, context) as port:
        upstream = Upstream(bootstrap=(HostPort("localhost", port),), tls=UpstreamTls(ca=named.file, server_name=server_name))
        async with open_gateway(broker, upstream=upstream, probed=False, clean=False) as sluice:
            client: ScriptedClient = await sluice.client()
            assert await client.ask(produce_request(4)) == produce_answer(9, 4)
            assert set(reported) == {server_name or "localhost"}
            client.close()
            await sluice.until_closed("client_closed")


@pytest.mark.parametrize("spoil", ["name", "authority"])
async def test_a_broker_that_cannot_prove_itself_is_unreachable(proxy: ProxyFixture, tmp_path: Path, spoil: str) -> None:
    """A broker whose certificate has another name or authority gets no request, and its client is closed."""
    context = server_context(TlsFiles(proxy.server.certificate, proxy.server.key), "none", time.time())
    (tmp_path / "strange").mkdir()
    ca = Authority(tmp_path / "strange", "nobody").file if spoil == "authority" else proxy.authority.file
    tls = UpstreamTls(ca=ca, server_name="kafka.example.org" if spoil == "name" else None)
    async with ScriptedBroker() as broker, tls_front(broker, context) as port:
        upstream = Upstream(bootstrap=(HostPort(HOST, port),), tls=tls)
        async with open_gateway(broker, upstream=upstream, probed=False, clean=False) as sluice:
            client = await sluice.client()
            await client.send(produce_request(4))
            await client.read_to_end()
            await sluice.until_closed("upstream_unreachable")
            await until(lambda: sluice.app.prober.error is not None)
            assert "certificate verify failed" in str(sluice.app.prober.error).lower()
            assert all(not connection.requests for connection in broker.connections)
