"""Requests about quotas that Sluice answers: they are held until their turn, and do not reach the broker."""

import pytest

from protocol.api_keys import API_VERSIONS
from protocol.limits import MAX_QUOTA_REQUEST_BYTES
from protocol.messages.client_quotas import (
    AlterRequest,
    AlterResult,
    DescribeRequest,
    FilterComponent,
    QuotaOp,
    alter_answer,
    alter_request,
    describe_request,
    read_alter_answer,
)
from proxy.base.close_reason import CloseReason
from proxy.session.administered import AT_ONCE_BYTES, CORRELATION_ID, read_body
from tests.support.frames.kafka_frames import answered, plain, produced, request_ids
from tests.support.memory.memory_connection import Peer, ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_for

ALICE = (("user", "alice"),)


def asks(correlation_id: int, version: int = 1) -> bytes:
    """Return a request that changes a quota."""
    return alter_request(version, correlation_id, "admin", [(ALICE, [QuotaOp("producer_byte_rate", 1_024.0)])], validate_only=False)


def answers(correlation_id: int, version: int = 1) -> bytes:
    """Return the response to that request."""
    return alter_answer(version, correlation_id, [AlterResult(ALICE, 0, None)])


@pytest.fixture
def peer(proxy: ProxyFixture) -> Peer:
    """Return a connection of a proxy that answers requests about quotas."""
    proxy.settings.answers_quotas = True
    return proxy.connect()


@pytest.mark.parametrize("version", [0, 1])
def test_answered_here(proxy: ProxyFixture, peer: Peer, version: int) -> None:
    """The request is handed to the administration once, does not reach the broker, and the client gets the response."""
    assert peer.sends(asks(7, version)) == []
    assert proxy.administered == [peer.connection]
    request = peer.connection.session.requests.pending.administered
    assert request is not None
    assert request.body == AlterRequest([(ALICE, [("producer_byte_rate", 1_024.0, False)])], validate_only=False)
    assert peer.delivered() == []
    peer.connection.answer(answers(7, version))
    assert read_alter_answer(version, peer.client.take()) == [AlterResult(ALICE, 0, None)]
    assert peer.sends(plain(8)) == [8]
    assert proxy.administered == [peer.connection]


def test_behind_an_answer_that_is_not_here_in_whole(peer: Peer) -> None:
    """The response is sent only after the last byte of the response before it."""
    assert peer.sends(plain(1), asks(2), plain(3)) == [1]
    peer.broker.arrive(answered(1)[:-1])
    peer.connection.answer(answers(2))
    peer.broker.arrive(answered(1)[-1:])
    assert peer.forwarded() == [3]
    assert peer.answers(answered(3)) == [1, 2, 3]


def test_a_description_too(proxy: ProxyFixture, peer: Peer) -> None:
    """A describe request is handed over with its filter."""
    peer.sends(describe_request(0, 1, "admin", [FilterComponent("ip", 2, None)], strict=True))
    request = peer.connection.session.requests.pending.administered
    assert request is not None
    assert request.body == DescribeRequest([FilterComponent("ip", 2, None)], strict=True)


def test_a_large_one_is_read_by_who_answers_it(proxy: ProxyFixture, peer: Peer) -> None:
    """The entities of a large request are not parsed on the data path."""
    entries = [((("user", f"user-{number}"),), [QuotaOp("producer_byte_rate", 1_024.0)]) for number in range(1_000)]
    frame = alter_request(1, 7, "admin", entries, validate_only=False)
    assert len(frame) > AT_ONCE_BYTES
    assert peer.sends(frame) == []
    request = peer.connection.session.requests.pending.administered
    assert request is not None
    assert (request.body, request.correlation_id) == (None, 7)
    body = read_body(request)
    assert isinstance(body, AlterRequest)
    assert [entity for entity, _ in body.entries] == [entity for entity, _ in entries]


def test_where_brokers_keep_the_quotas_it_passes(proxy: ProxyFixture) -> None:
    """Where brokers keep the quotas the request is forwarded unchanged."""
    peer = proxy.connect()
    peer.client.arrive(asks(7))
    assert peer.broker.take() == asks(7)
    assert proxy.administered == []


def test_its_turn_comes_when_nothing_is_in_flight(proxy: ProxyFixture, peer: Peer) -> None:
    """The request waits for the responses before it, and requests behind it wait for its response."""
    assert peer.sends(plain(1), asks(2), plain(3), asks(4), plain(5)) == [1]
    assert proxy.administered == []
    assert peer.answers(answered(1)) == [1]
    assert len(proxy.administered) == 1
    peer.connection.answer(answers(2))
    assert (peer.delivered(), peer.forwarded()) == ([2], [3])
    assert peer.answers(answered(3)) == [3]
    assert len(proxy.administered) == 2
    peer.connection.answer(answers(4))
    assert (peer.delivered(), peer.forwarded()) == ([4], [5])
    assert peer.answers(answered(5)) == [5]


def test_cut_into_bytes(proxy: ProxyFixture, peer: Peer) -> None:
    """A request that arrives byte by byte is handed over when it is complete."""
    for byte in plain(1) + asks(2):
        peer.client.arrive(bytes([byte]))
    assert request_ids(peer.broker.take()) == [1]
    assert peer.answers(answered(1)) == [1]
    assert len(proxy.administered) == 1
    for byte in plain(3):
        peer.client.arrive(bytes([byte]))
    assert peer.forwarded() == []
    peer.connection.answer(answers(2))
    proxy.wait(0)
    assert (peer.delivered(), peer.forwarded()) == ([2], [3])


def test_behind_a_held_answer(proxy: ProxyFixture, peer: Peer) -> None:
    """The request is handed over when the held response before it has left."""
    assert peer.sends(produce_for(2_000, 1), asks(2)) == [1]
    assert peer.answers(produced(1, version=PRODUCE_VERSION)) == []
    proxy.wait(1_999)
    assert proxy.administered == []
    proxy.wait(1)
    assert peer.delivered() == [1]
    assert len(proxy.administered) == 1
    peer.connection.answer(answers(2))
    assert peer.delivered() == [2]


def test_who_half_closes_is_still_answered(proxy: ProxyFixture, peer: Peer) -> None:
    """A half-closed client gets its response, and the requests behind it are forwarded."""
    peer.sends(asks(1), plain(2), asks(3))
    peer.connection.client.eof_received()
    assert not peer.broker.eof_written
    peer.connection.answer(answers(1))
    assert (peer.delivered(), peer.forwarded()) == ([1], [2])
    assert peer.answers(answered(2)) == [2]
    assert proxy.closed == []
    peer.connection.answer(answers(3))
    assert peer.delivered() == [3]
    assert proxy.closed == [(CloseReason.CLIENT_CLOSED, "")]


def test_who_leaves_before_the_turn_still_has_it(proxy: ProxyFixture, peer: Peer) -> None:
    """A complete request of a half-closed client is handed over in its turn."""
    assert peer.sends(plain(1), asks(2)) == [1]
    peer.connection.client.eof_received()
    assert proxy.administered == []
    peer.answers(answered(1))
    assert proxy.administered == [peer.connection]
    peer.connection.answer(answers(2))
    assert proxy.closed == [(CloseReason.CLIENT_CLOSED, "")]


def test_who_is_gone_gets_nothing(proxy: ProxyFixture, peer: Peer) -> None:
    """The response for a client that has reset is dropped."""
    peer.sends(asks(1))
    peer.connection.client.connection_lost(ConnectionResetError())
    peer.connection.answer(answers(1))
    assert [reason for reason, _ in proxy.closed] == [CloseReason.CLIENT_RESET]
    assert peer.delivered() == []
    assert proxy.loop.crashes == []


def test_a_drain_waits_for_it(proxy: ProxyFixture, peer: Peer) -> None:
    """A drain waits for the request and for those received behind it, and reads nothing more."""
    peer.sends(plain(1), asks(2), plain(3), asks(4))
    peer.connection.drain()
    peer.client.arrive(plain(5))
    assert peer.answers(answered(1)) == [1]
    assert len(proxy.administered) == 1
    assert proxy.closed == []
    peer.connection.answer(answers(2))
    assert (peer.delivered(), peer.forwarded()) == ([2], [3])
    assert peer.answers(answered(3)) == [3]
    assert proxy.closed == []
    peer.connection.answer(answers(4))
    assert peer.delivered() == [4]
    assert proxy.closed == [(CloseReason.DRAIN, "")]
    assert peer.forwarded() == []


def test_one_that_does_not_read_ends_the_connection(proxy: ProxyFixture, peer: Peer) -> None:
    """A malformed request closes the connection after the responses before it."""
    broken = asks(2)[:-6]
    peer.sends(plain(1), (len(broken) - 4).to_bytes(4) + broken[4:])
    assert peer.answers(answered(1)) == [1]
    proxy.wait(0)
    assert [reason for reason, _ in proxy.closed] == [CloseReason.BAD_REQUEST]
    assert proxy.administered == []


def test_too_large_to_be_held(proxy: ProxyFixture, peer: Peer) -> None:
    """A request above `MAX_QUOTA_REQUEST_BYTES` closes the connection at its length field."""
    peer.client.arrive((MAX_QUOTA_REQUEST_BYTES + 1).to_bytes(4) + asks(1)[4:])
    proxy.wait(0)
    assert [reason for reason, _ in proxy.closed] == [CloseReason.FRAME_SIZE]


def test_a_question_for_it_goes_on_the_clients_own_connection(proxy: ProxyFixture, peer: Peer) -> None:
    """Responses to Sluice's own requests on the client's connection are not forwarded to the client."""
    session = peer.connection.session
    peer.sends(asks(1), plain(2))
    metadata = API_VERSIONS[3 << 16 | 8]
    reported = session.ask(metadata, plain(CORRELATION_ID), proxy.now_ms, 0)
    late = session.ask(metadata, plain(CORRELATION_ID), proxy.now_ms, 0)
    peer.answers(answered(CORRELATION_ID))
    assert reported.frame == answered(CORRELATION_ID)
    assert late.frame is None
    peer.connection.answer(answers(1))
    assert (peer.delivered(), peer.forwarded()) == ([1], [2])
    assert peer.answers(answered(CORRELATION_ID), answered(2)) == [2]
    assert late.frame == answered(CORRELATION_ID)
    assert proxy.closed == []
