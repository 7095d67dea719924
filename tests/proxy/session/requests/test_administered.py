"""Requests about quotas that are answered here: held whole, one at a time, in their turn; nothing of them reaches the broker."""

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
    """A change of a quota."""
    return alter_request(version, correlation_id, "admin", [(ALICE, [QuotaOp("producer_byte_rate", 1_024.0)])], validate_only=False)


def answers(correlation_id: int, version: int = 1) -> bytes:
    """What is answered to it."""
    return alter_answer(version, correlation_id, [AlterResult(ALICE, 0, None)])


@pytest.fixture
def peer(proxy: ProxyFixture) -> Peer:
    """A connection where quotas are kept here."""
    proxy.settings.answers_quotas = True
    return proxy.connect()


@pytest.mark.parametrize("version", [0, 1])
def test_answered_here(proxy: ProxyFixture, peer: Peer, version: int) -> None:
    """The broker never sees it; the administration is asked once, and the client gets its answer."""
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
    """Who administers may be asked already; the client gets what they say behind the last byte of that."""
    assert peer.sends(plain(1), asks(2), plain(3)) == [1]
    peer.broker.arrive(answered(1)[:-1])
    peer.connection.answer(answers(2))
    peer.broker.arrive(answered(1)[-1:])
    assert peer.forwarded() == [3]
    assert peer.answers(answered(3)) == [1, 2, 3]


def test_a_description_too(proxy: ProxyFixture, peer: Peer) -> None:
    """Its filter is read as it was meant."""
    peer.sends(describe_request(0, 1, "admin", [FilterComponent("ip", 2, None)], strict=True))
    request = peer.connection.session.requests.pending.administered
    assert request is not None
    assert request.body == DescribeRequest([FilterComponent("ip", 2, None)], strict=True)


def test_a_large_one_is_read_by_who_answers_it(proxy: ProxyFixture, peer: Peer) -> None:
    """Its header is read in its turn, its thousands of entities are not: that would keep all other connections waiting."""
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
    """Byte for byte."""
    peer = proxy.connect()
    peer.client.arrive(asks(7))
    assert peer.broker.take() == asks(7)
    assert proxy.administered == []


def test_its_turn_comes_when_nothing_is_in_flight(proxy: ProxyFixture, peer: Peer) -> None:
    """Behind a request that the broker works on it waits, and what is behind it waits for its answer; order is that of the requests."""
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
    """It is here when its last byte is."""
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
    """It is asked when that answer has left, and no client waits twice for its cost."""
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
    """Complete frames behind it still reach the broker; then the connection ends in order."""
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
    """A change that was sent in whole is made, although its client half-closed while another answer was owed."""
    assert peer.sends(plain(1), asks(2)) == [1]
    peer.connection.client.eof_received()
    assert proxy.administered == []
    peer.answers(answered(1))
    assert proxy.administered == [peer.connection]
    peer.connection.answer(answers(2))
    assert proxy.closed == [(CloseReason.CLIENT_CLOSED, "")]


def test_who_is_gone_gets_nothing(proxy: ProxyFixture, peer: Peer) -> None:
    """The answer for a client that was reset is dropped."""
    peer.sends(asks(1))
    peer.connection.client.connection_lost(ConnectionResetError())
    peer.connection.answer(answers(1))
    assert [reason for reason, _ in proxy.closed] == [CloseReason.CLIENT_RESET]
    assert peer.delivered() == []
    assert proxy.loop.crashes == []


def test_a_drain_waits_for_it(proxy: ProxyFixture, peer: Peer) -> None:
    """And for what was received behind it; nothing more is read."""
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
    """As at a broker; what was sent before it goes on and is answered first."""
    broken = asks(2)[:-6]
    peer.sends(plain(1), (len(broken) - 4).to_bytes(4) + broken[4:])
    assert peer.answers(answered(1)) == [1]
    proxy.wait(0)
    assert [reason for reason, _ in proxy.closed] == [CloseReason.BAD_REQUEST]
    assert proxy.administered == []


def test_too_large_to_be_held(proxy: ProxyFixture, peer: Peer) -> None:
    """Its length alone ends the connection."""
    peer.client.arrive((MAX_QUOTA_REQUEST_BYTES + 1).to_bytes(4) + asks(1)[4:])
    proxy.wait(0)
    assert [reason for reason, _ in proxy.closed] == [CloseReason.FRAME_SIZE]


def test_a_question_for_it_goes_on_the_clients_own_connection(proxy: ProxyFixture, peer: Peer) -> None:
    """What the broker says to it reaches only the client that asked, also when the client's answer has left meanwhile."""
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
