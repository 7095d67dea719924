"""The user of a connection, which is the one that the broker has accepted."""

import random
import struct
from collections.abc import Iterator

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey, Treatment
from proxy.base.close_reason import CloseReason
from proxy.enforcement.mode import Mode
from proxy.session.login.identity import IdentityRules
from proxy.session.login.login import BARE_PENDING_MAX
from quota.entity import ANONYMOUS, ClientQuotaEntity, KafkaPrincipal
from tests.support.frames import sasl_frames as frames
from tests.support.frames.kafka_frames import plain as request_of
from tests.support.frames.kafka_frames import produced
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_of
from tests.support.tls import sasl_tokens as tokens

ALICE = KafkaPrincipal("User", "alice")
DECLARED = IdentityRules("sasl", requires_login=True)
PLAIN_TOKEN = tokens.plain("alice")
METADATA = request_of(50, ApiKey.METADATA, 1)

SCRAM_STEPS = [(tokens.scram_first("alice"), b"r=abc,s=c2FsdA==,i=4096"), (b"c=biws,r=abc,p=cHJvb2Y=", b"v=c2ln")]
BEARER = tokens.bearer(tokens.jwt(tokens.claims("alice")))
EXCHANGES = {
    "PLAIN": [(PLAIN_TOKEN, b"")],
    "SCRAM-SHA-256": SCRAM_STEPS,
    "SCRAM-SHA-512": SCRAM_STEPS,
    "OAUTHBEARER": [(BEARER, b"")],
}


@pytest.fixture
def proxy() -> Iterator[ProxyFixture]:
    """Yield a proxy without quotas."""
    with ProxyFixture() as one:
        yield one


def exchange(
    peer: Peer,
    mechanism: str,
    steps: list[tuple[bytes, bytes]],
    *,
    version: int = 1,
    lifetime_ms: int = 0,
    first_id: int = 1,
) -> None:
    """Perform a login by requests and check that each is forwarded unchanged."""
    peer.client.arrive(frames.handshake(mechanism, correlation_id=first_id))
    assert peer.broker.take() == frames.handshake(mechanism, correlation_id=first_id)
    peer.broker.arrive(frames.handshake_answer(first_id))
    for number, (token, answer) in enumerate(steps, first_id + 1):
        sent = frames.authenticate(token, version=version, correlation_id=number)
        peer.client.arrive(sent)
        assert peer.broker.take() == sent
        peer.broker.arrive(frames.authenticate_answer(number, answer, version=version, lifetime_ms=lifetime_ms))
    peer.client.take()


def bare_exchange(peer: Peer, mechanism: str, steps: list[tuple[bytes, bytes | None]]) -> None:
    """Perform a login by bare tokens; an answer of None means that the broker sends nothing."""
    peer.client.arrive(frames.handshake(mechanism, version=0))
    peer.broker.take()
    peer.broker.arrive(frames.handshake_answer(1))
    peer.client.take()
    for token, answer in steps:
        peer.client.arrive(frames.bare(token))
        assert peer.broker.take() == frames.bare(token)
        if answer is not None:
            peer.broker.arrive(frames.bare(answer))
            assert peer.client.take() == frames.bare(answer)


def who(peer: Peer) -> KafkaPrincipal | None:
    """Return the principal of a connection."""
    return peer.connection.session.principal


# --- successful logins


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", EXCHANGES)
def test_the_principal_is_set_at_the_success_mark(proxy: ProxyFixture, mechanism: str, version: int) -> None:
    """The client is ANONYMOUS until the broker's last response of the login, and then the user that it claimed."""
    peer = proxy.connect(rules=DECLARED)
    *before, last = EXCHANGES[mechanism]
    lifetime_ms = 3_000 if mechanism == "OAUTHBEARER" else 0
    exchange(peer, mechanism, before, version=version)
    number = 2 + len(before)
    peer.client.arrive(frames.authenticate(last[0], version=version, correlation_id=number))
    assert who(peer) == ANONYMOUS
    assert peer.connection.session.login.required
    peer.broker.take()
    peer.broker.arrive(frames.authenticate_answer(number, last[1], version=version, lifetime_ms=lifetime_ms))
    assert who(peer) == ALICE
    assert peer.sends(METADATA) == [50]
    assert proxy.counters.logins == {(mechanism, "success"): 1}


@pytest.mark.parametrize("mechanism", EXCHANGES)
def test_e04_bare_tokens(proxy: ProxyFixture, mechanism: str) -> None:
    """After a handshake v0 bare tokens are forwarded, and requests are read again after the login."""
    peer = proxy.connect(rules=DECLARED)
    bare_exchange(peer, mechanism, EXCHANGES[mechanism])
    assert who(peer) == ALICE
    assert peer.sends(METADATA) == [50]
    assert proxy.closed == []


def test_e04_gssapi_ends_in_silence(proxy: ProxyFixture) -> None:
    """A bare GSSAPI login that the broker ends without a response ends with the next request."""
    peer = proxy.connect(rules=DECLARED)
    bare_exchange(peer, "GSSAPI", [(b"\x60\x82\x01", b"\x60\x81"), (b"", b"\x05\x04\x04\xff\x01"), (b"\x05\x04\x04\xff\x02", None)])
    assert peer.sends(METADATA) == [50]
    assert who(peer) == KafkaPrincipal("User", "__unknown__/sasl/GSSAPI")
    assert proxy.counters.logins == {("GSSAPI", "unknown"): 1}


def test_bare_tokens_without_end(proxy: ProxyFixture) -> None:
    """More pending bare tokens than `BARE_PENDING_MAX` close the connection."""
    peer = proxy.connect()
    bare_exchange(peer, "GSSAPI", [])
    peer.client.arrive(frames.bare(b"") * 10_000)
    proxy.wait(0)
    assert len(peer.broker.take()) <= BARE_PENDING_MAX * 4
    assert [reason for reason, _ in proxy.closed] == [CloseReason.BAD_REQUEST]


@pytest.mark.parametrize("mechanism", [*EXCHANGES, "GSSAPI"])
@pytest.mark.parametrize("version", [0, 1])
def test_any_cut_gives_the_same_login(proxy: ProxyFixture, mechanism: str, version: int) -> None:
    """Segmentation changes neither what is forwarded in a login nor its user."""
    steps = EXCHANGES.get(mechanism, [(b"\x60\x01", b"\x60\x02"), (b"", b"\x05\x04\x01")])
    for piece in (1, 2, 3, 7):
        peer = proxy.connect(rules=DECLARED)
        sent = frames.handshake(mechanism, version=version)
        answers = frames.handshake_answer(1)
        dialogue = [(sent, answers)]
        for number, (token, answer) in enumerate(steps, 2):
            if version:
                lifetime = 9_000 if mechanism == "OAUTHBEARER" else 0
                answered = frames.authenticate_answer(number, answer, lifetime_ms=lifetime)
                dialogue.append((frames.authenticate(token, correlation_id=number), answered))
            else:
                dialogue.append((frames.bare(token), frames.bare(answer)))
        for request, response in [*dialogue, (METADATA, b"")]:
            for at in range(0, len(request), piece):
                peer.client.arrive(request[at : at + piece])
            proxy.wait(0)
            assert peer.broker.take() == request
            for at in range(0, len(response), piece):
                peer.broker.arrive(response[at : at + piece])
            proxy.wait(0)
            assert peer.client.take() == response
        assert who(peer) == (ALICE if mechanism in EXCHANGES else KafkaPrincipal("User", "__unknown__/sasl/GSSAPI"))
    assert proxy.closed == []


# --- failed logins


@pytest.mark.parametrize(
    ("mechanism", "token", "answer"),
    [
        pytest.param("PLAIN", PLAIN_TOKEN, frames.authenticate_answer(2, error_code=58, message="no"), id="refused"),
        pytest.param("OAUTHBEARER", BEARER, frames.authenticate_answer(2, b'{"status":"invalid_token"}'), id="e08-error-challenge"),
        pytest.param("OAUTHBEARER", BEARER, frames.authenticate_answer(2, lifetime_ms=0), id="bearer-token-ran-out"),
        pytest.param("SCRAM-SHA-256", SCRAM_STEPS[0][0], frames.authenticate_answer(2, b"r=abc"), id="first-round"),
        pytest.param("SCRAM-SHA-256", SCRAM_STEPS[0][0], frames.authenticate_answer(2), id="empty-scram"),
    ],
)
def test_a_response_without_success_names_no_user(proxy: ProxyFixture, mechanism: str, token: bytes, answer: bytes) -> None:
    """A login response without success is forwarded and sets no user."""
    peer = proxy.connect(rules=DECLARED)
    exchange(peer, mechanism, [])
    peer.client.arrive(frames.authenticate(token))
    peer.broker.arrive(answer)
    assert peer.client.take() == answer
    assert who(peer) == ANONYMOUS
    peer.client.arrive(METADATA)
    assert proxy.closed[0][0] is CloseReason.LOGIN_REQUIRED


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        ("PLAIN", [(tokens.plain("alice", authzid="bob"), b"")]),
        ("PLAIN", [(b"\0\xff\0p", b"")]),
        ("SCRAM-SHA-256", [(tokens.scram_first("id", extra=",tokenauth=true"), b"r=abc"), (b"c=biws", b"v=x")]),
        ("GSSAPI", [(b"\x60", b"\x60"), (b"", b"\x05\x04"), (b"\x05\x04 bob", b"")]),
        ("AWS_MSK_IAM", [(b"{}", b"{}")]),
    ],
)
def test_a_doubt_is_a_bucket_or_the_end(proxy: ProxyFixture, mechanism: str, steps: list[tuple[bytes, bytes]]) -> None:
    """A login whose user cannot be read gets the unknown principal, or closes the connection if the listener rejects it."""
    peer = proxy.connect(rules=DECLARED)
    exchange(peer, mechanism, steps)
    assert who(peer) == KafkaPrincipal("User", f"__unknown__/sasl/{mechanism}")
    assert peer.sends(METADATA) == [50]
    label = mechanism if mechanism != "AWS_MSK_IAM" else "other"
    assert proxy.counters.logins == {(label, "unknown"): 1}
    strict = proxy.connect(rules=IdentityRules("sasl", requires_login=True, rejects_unknown=True))
    strict.client.arrive(frames.handshake(mechanism))
    strict.broker.arrive(frames.handshake_answer(1))
    for number, (token, answer) in enumerate(steps, 2):
        strict.client.arrive(frames.authenticate(token, correlation_id=number))
        if not proxy.closed:
            strict.broker.arrive(frames.authenticate_answer(number, answer))
    assert [reason for reason, _ in proxy.closed] == [CloseReason.PRINCIPAL_UNKNOWN]


def test_tokens_without_a_user_pass(proxy: ProxyFixture) -> None:
    """Where no login is required, tokens without an accepted handshake are forwarded and set no user."""
    peer = proxy.connect()
    peer.client.arrive(frames.authenticate(PLAIN_TOKEN))
    peer.broker.arrive(frames.authenticate_answer(2, error_code=34))
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=3))
    peer.broker.arrive(frames.handshake_answer(3, error_code=34))
    peer.client.arrive(frames.authenticate(PLAIN_TOKEN, correlation_id=4))
    peer.broker.arrive(frames.authenticate_answer(4))
    peer.client.take()
    assert who(peer) == ANONYMOUS
    peer.broker.take()
    assert peer.sends(METADATA) == [50]


# --- a declared listener before the login


def first_frame_of(key: int, version: int) -> bytes:
    """Return the beginning of a request."""
    return struct.pack(">ihhih", 40_000, key, version, 1, 3) + b"app" + bytes(60)


@pytest.mark.parametrize("key", sorted({api.key for api in API_VERSIONS.values()} - {17, 18, 36}))
def test_e03_nothing_but_a_login_before_the_login(proxy: ProxyFixture, key: int) -> None:
    """On a listener that requires a login another API closes the connection before it is forwarded."""
    api = next(api for api in API_VERSIONS.values() if api.key == key)
    peer = proxy.connect(rules=DECLARED)
    peer.client.arrive(first_frame_of(key, api.version))
    expected = CloseReason.API_REFUSED if api.treatment is Treatment.REFUSE else CloseReason.LOGIN_REQUIRED
    assert [reason for reason, _ in proxy.closed] == [expected]
    assert peer.broker.take() == b""


def test_e03_after_apiversions_and_between_tokens(proxy: ProxyFixture) -> None:
    """ApiVersions or an unfinished login do not permit other APIs."""
    for before in ([request_of(1, ApiKey.API_VERSIONS, 0)], []):
        peer = proxy.connect(rules=DECLARED)
        for frame in before:
            assert peer.sends(frame) == [1]
            peer.broker.arrive(struct.pack(">iihi", 10, 1, 0, 0))
        exchange(peer, "SCRAM-SHA-256", SCRAM_STEPS[:1], first_id=2)
        peer.client.arrive(METADATA)
        assert proxy.closed.pop()[0] is CloseReason.LOGIN_REQUIRED


@pytest.mark.parametrize("size", [65_537, 104_857_600, -1])
def test_e07_long_tokens_end_on_their_length(proxy: ProxyFixture, size: int) -> None:
    """A token whose length is invalid or too large closes the connection at its length field."""
    peer = proxy.connect(rules=DECLARED)
    peer.client.arrive(struct.pack(">i", size))
    assert proxy.closed.pop()[0] is CloseReason.FRAME_SIZE
    bare = proxy.connect()
    bare.client.arrive(frames.handshake("PLAIN", version=0))
    bare.broker.arrive(frames.handshake_answer(1))
    bare.client.arrive(struct.pack(">i", size))
    assert proxy.closed.pop()[0] is CloseReason.FRAME_SIZE
    broker = proxy.connect()
    broker.client.arrive(frames.handshake("PLAIN", version=0))
    broker.broker.arrive(frames.handshake_answer(1))
    broker.client.arrive(frames.bare(PLAIN_TOKEN))
    broker.broker.arrive(struct.pack(">i", max(size, 524_289) if size > 0 else size))
    assert proxy.closed.pop()[0] is CloseReason.FRAME_SIZE


def test_a_first_token_has_64_kib_and_that_of_a_renewal_512(proxy: ProxyFixture) -> None:
    """A token may have 64 KiB in a first login and 512 KiB in a renewal."""
    open_listener = proxy.connect()
    open_listener.client.arrive(frames.handshake("PLAIN"))
    open_listener.broker.arrive(frames.handshake_answer(1))
    open_listener.client.arrive(frames.authenticate(bytes(65_537))[:20])
    assert proxy.closed.pop()[0] is CloseReason.FRAME_SIZE
    peer = proxy.connect()
    exchange(peer, "PLAIN", EXCHANGES["PLAIN"])
    assert peer.connection.session.requests.token_bytes_max == 524_288


def test_after_the_login_frames_are_as_long_as_ever(proxy: ProxyFixture) -> None:
    """After the login a request of 600,000 bytes is forwarded."""
    peer = proxy.connect(rules=DECLARED)
    exchange(peer, "PLAIN", EXCHANGES["PLAIN"])
    peer.client.arrive(produce_of(600_000, 7))
    assert len(peer.broker.take()) > 600_000


def test_mechanisms_that_may_not_pass(proxy: ProxyFixture) -> None:
    """A mechanism that the listener does not allow, or that Sluice cannot follow, closes the connection."""
    only_scram = IdentityRules("sasl", requires_login=True, mechanisms=frozenset({"SCRAM-SHA-512"}))
    for rules, frame in ((only_scram, frames.handshake("PLAIN")), (DECLARED, frames.handshake("AWS_MSK_IAM", version=0))):
        peer = proxy.connect(rules=rules)
        peer.client.arrive(frame)
        assert proxy.closed.pop()[0] is CloseReason.MECHANISM_REFUSED
        assert peer.broker.take() == b""


def test_plain_in_the_clear_is_reported(proxy: ProxyFixture) -> None:
    """A PLAIN login without TLS is reported unless it comes from loopback."""
    reported: list[tuple[str, tuple[str, int]]] = []
    rules = IdentityRules("open", on_plain_exposed=lambda listener, peer: reported.append((listener, peer)))
    for host in ("127.0.0.1", "::1", "::ffff:127.0.0.9", "10.0.0.7"):
        proxy.connect(rules=rules, host=host).client.arrive(frames.handshake("PLAIN"))
    proxy.connect(rules=rules, host="10.0.0.7").client.arrive(frames.handshake("SCRAM-SHA-256"))
    assert reported == [("open", ("10.0.0.7", 9))]


# --- requests behind a login message


@pytest.mark.parametrize("version", [0, 1])
def test_e06_what_is_behind_a_token_waits(proxy: ProxyFixture, version: int) -> None:
    """Requests behind a login message wait for its response and count for the user of the login."""
    proxy.scope.produce.update_quota(ClientQuotaEntity("alice", None), 1e9)
    proxy.scope.produce.update_quota(ClientQuotaEntity("ANONYMOUS", None), 1e9)
    peer = proxy.connect()
    token = frames.authenticate(PLAIN_TOKEN) if version else frames.bare(PLAIN_TOKEN)
    produce = produce_of(4_000, 9)
    peer.client.arrive(frames.handshake("PLAIN", version=version) + token + produce)
    assert peer.broker.take() == frames.handshake("PLAIN", version=version)
    proxy.wait(0)
    assert peer.broker.take() == b""
    peer.broker.arrive(frames.handshake_answer(1))
    assert peer.broker.take() == token
    peer.broker.arrive(frames.authenticate_answer(2) if version else frames.bare(b""))
    assert peer.broker.take() == produce
    peer.broker.arrive(produced(9, version=PRODUCE_VERSION))
    assert {(group.tags["user"], group.recorded_total) for group in proxy.scope.produce.groups()} == {("alice", len(produce) - 4)}


def test_e06_a_client_that_leaves_changes_nothing(proxy: ProxyFixture) -> None:
    """Requests behind a login of a half-closed client are forwarded after the login and count for its user."""
    proxy.scope.produce.update_quota(ClientQuotaEntity("alice", None), 1e9)
    peer = proxy.connect()
    produce = produce_of(100, 9, acks=0)
    peer.client.arrive(frames.handshake("PLAIN") + frames.authenticate(PLAIN_TOKEN) + produce)
    peer.connection.client.eof_received()
    peer.broker.arrive(frames.handshake_answer(1))
    peer.broker.take()
    peer.broker.arrive(frames.authenticate_answer(2))
    proxy.wait(10)
    assert peer.broker.take() == produce
    assert [reason for reason, _ in proxy.closed] == [CloseReason.CLIENT_CLOSED]
    assert [group.tags["user"] for group in proxy.scope.produce.groups()] == ["alice"]


# --- reauthentication


def test_e01_a_session_is_renewed(proxy: ProxyFixture) -> None:
    """A renewal (KIP-368) keeps the principal and is ordered with the requests around it."""
    peer = proxy.connect()
    exchange(peer, "PLAIN", EXCHANGES["PLAIN"], lifetime_ms=3_000)
    peer.client.arrive(METADATA + frames.handshake("PLAIN", correlation_id=60) + frames.authenticate(PLAIN_TOKEN, correlation_id=61))
    assert peer.broker.take() == METADATA + frames.handshake("PLAIN", correlation_id=60)
    peer.client.arrive(request_of(70, ApiKey.METADATA, 1))
    peer.broker.arrive(struct.pack(">iiiii", 16, 50, 0, 0, 0) + frames.handshake_answer(60))
    assert peer.broker.take() == frames.authenticate(PLAIN_TOKEN, correlation_id=61)
    peer.broker.arrive(frames.authenticate_answer(61, lifetime_ms=3_000))
    proxy.wait(0)
    assert peer.forwarded() == [70]
    assert who(peer) == ALICE
    assert proxy.counters.logins == {("PLAIN", "success"): 2}


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        ("PLAIN", [(tokens.plain("bob"), b"")]),
        ("SCRAM-SHA-256", SCRAM_STEPS),
        ("GSSAPI", [(b"\x60", b"")]),
        ("PLAIN", [(b"\0\xff\0p", b"")]),
    ],
)
def test_e05_no_client_becomes_another_user(proxy: ProxyFixture, mechanism: str, steps: list[tuple[bytes, bytes]]) -> None:
    """A renewal with another user or mechanism closes the connection, although the broker accepts it."""
    peer = proxy.connect()
    exchange(peer, "PLAIN", EXCHANGES["PLAIN"])
    exchange(peer, mechanism, steps, first_id=10)
    assert [reason for reason, _ in proxy.closed] == [CloseReason.PRINCIPAL_CHANGED]
    assert who(peer) == ALICE


@pytest.mark.parametrize("error_code", [34, 58])
def test_e05_a_refused_renewal_changes_nothing(proxy: ProxyFixture, error_code: int) -> None:
    """A renewal that the broker refuses leaves the connection and its user unchanged."""
    peer = proxy.connect()
    exchange(peer, "PLAIN", EXCHANGES["PLAIN"], lifetime_ms=3_000)
    peer.client.arrive(frames.handshake("PLAIN", correlation_id=10))
    peer.broker.arrive(frames.handshake_answer(10, error_code=34 if error_code == 34 else 0))
    if error_code == 58:
        peer.client.arrive(frames.authenticate(tokens.plain("bob"), correlation_id=11))
        peer.broker.arrive(frames.authenticate_answer(11, error_code=58))
    peer.broker.take()
    assert peer.sends(METADATA) == [50]
    assert who(peer) == ALICE
    assert proxy.closed == []


# --- limits and invalid messages


def test_connections_of_a_principal_are_limited(proxy: ProxyFixture) -> None:
    """A principal above its limit of connections is closed, except in mode `observe`."""
    proxy.settings.principals.max_connections = 1
    proxy.settings.principals.overrides = {"User:bob": 2}
    first = proxy.connect()
    exchange(first, "PLAIN", EXCHANGES["PLAIN"])
    exchange(first, "PLAIN", EXCHANGES["PLAIN"], first_id=10)
    exchange(proxy.connect(), "PLAIN", EXCHANGES["PLAIN"])
    assert [reason for reason, _ in proxy.closed] == [CloseReason.MAX_CONNECTIONS_PER_PRINCIPAL]
    for _ in range(2):
        exchange(proxy.connect(), "PLAIN", [(tokens.plain("bob"), b"")])
    first.connection.close(CloseReason.IDLE)
    exchange(proxy.connect(), "PLAIN", EXCHANGES["PLAIN"])
    assert len(proxy.closed) == 2
    proxy.enforcement.mode = Mode.OBSERVE
    last = proxy.connect()
    exchange(last, "PLAIN", EXCHANGES["PLAIN"])
    assert who(last) == ALICE
    assert len(proxy.closed) == 2


@pytest.mark.parametrize("seed", range(60))
def test_noise_in_a_login_ends_it_at_most(seed: int) -> None:
    """With mutated bytes from both sides a login causes no internal error."""
    dice = random.Random(seed)
    with ProxyFixture() as proxy:
        for _ in range(8):
            peer = proxy.connect(rules=dice.choice([DECLARED, IdentityRules("l")]))
            mechanism = dice.choice([*EXCHANGES, "GSSAPI", "X"])
            version = dice.randint(0, 1)
            steps = EXCHANGES.get(mechanism, [(b"\x60", b"\x60"), (b"", b"")])
            dialogue = [(frames.handshake(mechanism, version=version), frames.handshake_answer(1))]
            for number, (token, answer) in enumerate(steps, 2):
                if version:
                    dialogue.append((frames.authenticate(token, correlation_id=number), frames.authenticate_answer(number, answer)))
                else:
                    dialogue.append((frames.bare(token), frames.bare(answer)))
            dialogue.append((METADATA, b""))
            for sent, answer in dialogue:
                for side, data in ((peer.client, sent), (peer.broker, answer)):
                    noisy = tokens.mutated(data, dice) if dice.random() < 0.2 else data
                    cut = dice.randint(0, len(noisy))
                    side.arrive(noisy[:cut])
                    side.arrive(noisy[cut:])
            proxy.wait(100)
        assert proxy.counters.internal_errors == 0
        assert proxy.loop.crashes == []
        assert CloseReason.INTERNAL_ERROR not in [reason for reason, _ in proxy.closed]
