"""Responses that the proxy generates itself keep the order of the requests (KIP-511: ApiVersions in an unknown version)."""

import pytest

from protocol.api_keys import MAX_VERSIONS
from protocol.messages.api_versions import read_api_keys
from proxy.base.close_reason import CloseReason
from tests.support.frames.kafka_frames import answered, api_versions, api_versions_answer, plain, produced, request_ids
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import PRODUCE_VERSION, produce_for


@pytest.mark.parametrize("version", [5, 6, 99, 32_767])
def test_from_the_future(proxy: ProxyFixture, version: int) -> None:
    """ApiVersions in an unknown version gets the v0 response with error 35 from the proxy, and the broker never sees the request."""
    peer = proxy.connect()
    assert peer.sends(api_versions(7, version)) == []
    proxy.wait(0)
    answer = peer.client.take()
    assert answer[4:10] == b"\0\0\0\x07\0\x23"
    assert read_api_keys(0, answer) == [(18, 0, MAX_VERSIONS[18])]


def test_a_version_that_is_known_goes_to_the_broker(proxy: ProxyFixture) -> None:
    """ApiVersions in a known version is forwarded, and its response is reduced to the APIs and versions that the proxy knows."""
    peer = proxy.connect()
    assert peer.sends(api_versions(1, MAX_VERSIONS[18])) == [1]
    peer.broker.arrive(api_versions_answer(1, [(0, 3, 99), (999, 0, 0), (4, 0, 7), (18, 0, 99)], MAX_VERSIONS[18]))
    assert read_api_keys(MAX_VERSIONS[18], peer.client.take()) == [(0, 3, MAX_VERSIONS[0]), (18, 0, MAX_VERSIONS[18])]


def test_in_turn(proxy: ProxyFixture) -> None:
    """A response of the proxy is sent in the order of the requests, among the responses of the broker."""
    peer = proxy.connect()
    assert peer.sends(plain(1), api_versions(2, 99), plain(3), api_versions(4, 99), api_versions(5, 99)) == [1, 3]
    assert peer.delivered() == []
    assert peer.answers(answered(1)) == [1, 2]
    assert peer.answers(answered(3)) == [3, 4, 5]


def test_behind_a_held_answer(proxy: ProxyFixture) -> None:
    """A response of the proxy waits behind a held response and is sent with it."""
    peer = proxy.connect()
    assert peer.sends(produce_for(2_000, 1), api_versions(2, 99), plain(3)) == [1, 3]
    assert peer.answers(produced(1, version=PRODUCE_VERSION), answered(3)) == []
    proxy.wait(1_999)
    assert peer.delivered() == []
    proxy.wait(1)
    assert peer.delivered() == [1, 2, 3]


@pytest.mark.parametrize("piece_bytes", [1, 5, 9, 40])
def test_behind_an_answer_in_pieces(proxy: ProxyFixture, piece_bytes: int) -> None:
    """A response of the proxy is sent after the last byte of the response before it, not in the middle of it."""
    peer = proxy.connect()
    assert peer.sends(plain(1), api_versions(2, 99), plain(3)) == [1, 3]
    answer = answered(1) + answered(3)
    for start in range(0, len(answer), piece_bytes):
        peer.broker.arrive(answer[start : start + piece_bytes])
    assert peer.delivered() == [1, 2, 3]


def test_cut_and_between_others(proxy: ProxyFixture) -> None:
    """A request that the proxy answers itself is taken out of a stream that arrives byte by byte, and all other bytes are forwarded."""
    peer = proxy.connect()
    for byte in plain(1) + api_versions(2, 99) + plain(3):
        peer.client.arrive(bytes([byte]))
    assert request_ids(peer.broker.take()) == [1, 3]
    assert peer.answers(answered(1), answered(3)) == [1, 2, 3]


def test_an_answer_of_the_broker_to_it_is_a_mismatch(proxy: ProxyFixture) -> None:
    """A broker response to a request that was never forwarded closes the connection."""
    peer = proxy.connect()
    peer.sends(api_versions(2, 99), plain(3))
    peer.answers(answered(2))
    assert [reason for reason, _ in proxy.closed] == [CloseReason.RESPONSE_MISMATCH]
