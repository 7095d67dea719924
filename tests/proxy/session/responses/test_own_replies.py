"""Replies of our own take their turn in the queue of answers (KIP-511: ApiVersions from the future)."""

import pytest

from protocol.api_keys import MAX_VERSIONS
from protocol.messages.api_versions import read_api_keys
from proxy.base.close_reason import CloseReason
from tests.support.frames.kafka_frames import answered, api_versions, api_versions_answer, plain, produced, request_ids
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_for


@pytest.mark.parametrize("version", [5, 6, 99, 32_767])
def test_from_the_future(proxy: ProxyFixture, version: int) -> None:
    """The broker never sees it; the client gets the v0 answer with error 35 and the versions it may ask for."""
    peer = proxy.connect()
    assert peer.sends(api_versions(7, version)) == []
    proxy.wait(0)
    answer = peer.client.take()
    assert answer[4:10] == b"\0\0\0\x07\0\x23"
    assert read_api_keys(0, answer) == [(18, 0, MAX_VERSIONS[18])]


def test_a_version_that_is_known_goes_to_the_broker(proxy: ProxyFixture) -> None:
    """And its answer comes back cut to what Sluice knows."""
    peer = proxy.connect()
    assert peer.sends(api_versions(1, MAX_VERSIONS[18])) == [1]
    peer.broker.arrive(api_versions_answer(1, [(0, 3, 99), (999, 0, 0), (4, 0, 7), (18, 0, 99)], MAX_VERSIONS[18]))
    assert read_api_keys(MAX_VERSIONS[18], peer.client.take()) == [(0, 3, MAX_VERSIONS[0]), (18, 0, MAX_VERSIONS[18])]


def test_in_turn(proxy: ProxyFixture) -> None:
    """Behind an answer that is owed it waits; before one it goes first; order is that of the requests."""
    peer = proxy.connect()
    assert peer.sends(plain(1), api_versions(2, 99), plain(3), api_versions(4, 99), api_versions(5, 99)) == [1, 3]
    assert peer.delivered() == []
    assert peer.answers(answered(1)) == [1, 2]
    assert peer.answers(answered(3)) == [3, 4, 5]


def test_behind_a_held_answer(proxy: ProxyFixture) -> None:
    """It waits for the deadline with the rest."""
    peer = proxy.connect()
    assert peer.sends(produce_for(2_000, 1), api_versions(2, 99), plain(3)) == [1, 3]
    assert peer.answers(produced(1, version=PRODUCE_VERSION), answered(3)) == []
    proxy.wait(1_999)
    assert peer.delivered() == []
    proxy.wait(1)
    assert peer.delivered() == [1, 2, 3]


@pytest.mark.parametrize("piece_bytes", [1, 5, 9, 40])
def test_behind_an_answer_in_pieces(proxy: ProxyFixture, piece_bytes: int) -> None:
    """It comes when the last byte of the answer before it has gone, not into the middle of that."""
    peer = proxy.connect()
    assert peer.sends(plain(1), api_versions(2, 99), plain(3)) == [1, 3]
    answer = answered(1) + answered(3)
    for start in range(0, len(answer), piece_bytes):
        peer.broker.arrive(answer[start : start + piece_bytes])
    assert peer.delivered() == [1, 2, 3]


def test_cut_and_between_others(proxy: ProxyFixture) -> None:
    """Byte by byte, its bytes are taken out and all else goes on."""
    peer = proxy.connect()
    for byte in plain(1) + api_versions(2, 99) + plain(3):
        peer.client.arrive(bytes([byte]))
    assert request_ids(peer.broker.take()) == [1, 3]
    assert peer.answers(answered(1), answered(3)) == [1, 2, 3]


def test_an_answer_of_the_broker_to_it_is_a_mismatch(proxy: ProxyFixture) -> None:
    """What the broker was not asked it cannot answer."""
    peer = proxy.connect()
    peer.sends(api_versions(2, 99), plain(3))
    peer.answers(answered(2))
    assert [reason for reason, _ in proxy.closed] == [CloseReason.RESPONSE_MISMATCH]
