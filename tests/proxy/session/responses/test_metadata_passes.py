"""The broker addresses of a Metadata response are rewritten while its topics are passed on."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError, FrameSizeError
from protocol.layout import layout_of
from protocol.limits import LENGTH_BYTES, MAX_REWRITTEN_RESPONSE_BYTES
from protocol.messages.metadata import find_brokers_end, read_topology
from protocol.steps import Pace, finished
from proxy.base.close_reason import CloseReason
from proxy.session.addresses import AddressBook, ClientView
from proxy.session.rewrite import ApiVersionsCut, BrokersWalker, Rewriter
from tests.support.frames import kafka_frames
from tests.support.memory.memory_connection import ProxyFixture

METADATA = [api for api in API_VERSIONS.values() if api.key == ApiKey.METADATA]
BY_VERSION = pytest.mark.parametrize("api", METADATA, ids=lambda api: f"v{api.version}")
HOSTS = st.sampled_from(["b", "broker-1.internal", "x" * 200])


def ours(node_id: int, _host: str, _port: int) -> tuple[str, int]:
    """Return the client-facing address of a broker."""
    return "sluice.example.org", 9_000 + node_id


def answer(api: ApiVersion, hosts: list[str], topics: int = 20, *, throttle_ms: int = 0) -> bytes:
    """Return a whole Metadata response with these brokers and some topics."""
    partitions = [{"PartitionIndex": number, "LeaderId": 1, "ReplicaNodes": [1], "IsrNodes": [1]} for number in range(5)]
    values: dict[str, Any] = {
        "ThrottleTimeMs": throttle_ms,
        "Brokers": [{"NodeId": number, "Host": host, "Port": 9, "Rack": None} for number, host in enumerate(hosts, 1)],
        "Topics": [{"Name": f"topic-{number}" * 10, "Partitions": partitions} for number in range(topics)],
    }
    return kafka_frames.response(api, kafka_frames.message(layout_of(api.key, "response", api.version), **values), 1)


@BY_VERSION
def test_however_it_is_cut_it_leaves_as_if_it_had_been_whole(api: ApiVersion) -> None:
    """A Metadata response in pieces leaves with rewritten brokers, the right length and the broker's own bytes for the topics."""

    @settings(max_examples=8, deadline=None)
    @given(hosts=st.lists(HOSTS, max_size=4), cuts=st.lists(st.integers(0, 8_000), max_size=8))
    def check(hosts: list[str], cuts: list[int]) -> None:
        frame = answer(api, hosts)
        ends = sorted({min(cut, len(frame)) for cut in cuts} | {len(frame)})
        with ProxyFixture() as proxy:
            peer = proxy.connect(ours)
            peer.sends(kafka_frames.request(api, b"", 1))
            at, passed = 0, b""
            for end in ends:
                peer.broker.arrive(frame[at:end])
                passed += peer.client.take()
                at = end
            assert proxy.closed == []
            assert peer.connection.session.buffer.reserved_bytes == 0
        assert len(passed) == LENGTH_BYTES + int.from_bytes(passed[:LENGTH_BYTES], "big")
        there, here = read_topology(api, frame), read_topology(api, passed)
        assert here.partitions == there.partitions
        assert [(broker.host, broker.port) for broker in here.brokers] == [ours(broker.node_id, "", 0) for broker in there.brokers]
        brokers_end = find_brokers_end(api, frame, len(frame))
        assert brokers_end is not None
        assert passed.endswith(frame[brokers_end:])

    check()


def through(rewriter: Rewriter, api: ApiVersion, frame: bytes) -> bytes:
    """Return the response as it leaves when nothing of an earlier response is reused."""
    return bytes(finished(rewriter.walker(api, len(frame)).feed(frame, Pace())))


@BY_VERSION
def test_brokers_that_are_those_of_the_answer_before_are_not_read_again(api: ApiVersion) -> None:
    """The rewritten brokers of a response are reused for the next response with the same brokers, and only for such a response."""
    book = AddressBook(lambda _: True)
    view = ClientView(book, lambda node_id: ours(node_id, "", 0))
    cut = ApiVersionsCut(unknown_apis_pass=False)
    rewriter = Rewriter(view.client_address, None, cut, redact_configs=True, revision=view.revision)
    first, other = answer(api, ["b1", "b2"]), answer(api, ["b1", "b2"], 3)
    other = other[:4] + (77).to_bytes(4, "big") + other[8:]
    assert rewriter.with_known_brokers(api, first, len(first)) is None
    expected = through(rewriter, api, other)
    through(rewriter, api, first)
    assert rewriter.with_known_brokers(api, other, len(other)) == expected
    assert rewriter.with_known_brokers(api, other[:-9], len(other)) == expected[:-9]
    for elsewhere in (answer(api, ["b1", "b3"]), first[:20]):
        assert rewriter.with_known_brokers(api, elsewhere, len(elsewhere)) is None


def test_brokers_are_read_again_after_one_has_moved() -> None:
    """After a broker has moved, a response with the old addresses is parsed again, and the address book learns them from it."""
    api, book = METADATA[-1], AddressBook(lambda _: True)
    view = ClientView(book, lambda node_id: ours(node_id, "", 0))
    rewriter = Rewriter(view.client_address, None, ApiVersionsCut(unknown_apis_pass=False), redact_configs=True, revision=view.revision)
    frame = answer(api, ["b1", "b2"])
    through(rewriter, api, frame)
    assert rewriter.with_known_brokers(api, frame, len(frame)) is not None
    book.learn(2, "b2-elsewhere", 9)
    assert rewriter.with_known_brokers(api, frame, len(frame)) is None
    through(rewriter, api, frame)
    assert book.upstream[2] == ("b2", 9)


def test_topics_are_not_kept() -> None:
    """After the brokers have been forwarded, no bytes of a Metadata response are buffered, however many are still to come."""
    api = METADATA[-1]
    frame = answer(api, ["broker-1.internal"], 2_000)
    with ProxyFixture() as proxy:
        peer = proxy.connect(ours)
        peer.sends(kafka_frames.request(api, b"", 1))
        peer.broker.arrive(frame[:20])
        assert peer.connection.session.buffer.reserved_bytes == 20
        peer.broker.arrive(frame[20:10_000])
        assert len(peer.client.take()) > 9_000
        responses = peer.connection.session.responses
        assert (responses.reserved_bytes, responses.passing_bytes) == (0, len(frame) - 10_000)
        peer.broker.arrive(frame[10_000:])
        assert peer.client.take().endswith(frame[10_000:])
        assert peer.connection.session.buffer.reserved_bytes == 0


def test_the_wait_is_announced_before_the_brokers_are_here() -> None:
    """The throttle time of a Metadata response is written although its first bytes arrive before the end of the broker list."""
    api = next(one for one in METADATA if one.version == 9)
    frame = answer(api, ["broker-1.internal"])
    with ProxyFixture(request=0.000_001, mode="mute") as proxy:
        peer = proxy.connect(ours)
        for number in range(3):
            peer.sends(kafka_frames.request(api, b"", number))
            proxy.loop.run_until(proxy.loop.now_ms + 500)
            whole = frame[:4] + number.to_bytes(4, "big") + frame[8:]
            peer.broker.arrive(whole[:30])
            peer.broker.arrive(whole[30:])
            passed = peer.client.take()
            proxy.loop.run_until(proxy.loop.now_ms + 60_000)
            if kafka_frames.throttle_ms(passed, ApiKey.METADATA, 9) > 0:
                return
        raise AssertionError("nothing was announced")


@pytest.mark.parametrize("cut", [9, 40, 1_000])
def test_an_address_without_a_listener_ends_the_connection_before_it_leaves(cut: int) -> None:
    """A broker address without a listener closes the connection before any byte of the response is sent to the client."""
    frame = answer(METADATA[-1], ["b" * 1_500])
    with ProxyFixture() as proxy:
        peer = proxy.connect(lambda *_: None)
        peer.sends(kafka_frames.request(METADATA[-1], b"", 1))
        peer.broker.arrive(frame[:cut])
        peer.broker.arrive(frame[cut:])
        assert peer.client.take() == b""
        assert [reason for reason, _ in proxy.closed] == [CloseReason.UNMAPPED]


def test_brokers_that_do_not_end_are_refused() -> None:
    """A broker list that goes beyond its frame, or beyond the largest size that is buffered, is an error."""
    api = METADATA[0]
    frame = answer(api, ["b"] * 3, 0)
    cut = (len(frame) - 20 - LENGTH_BYTES).to_bytes(4, "big") + frame[LENGTH_BYTES : len(frame) - 20]
    with pytest.raises(BadResponseError):
        finished(BrokersWalker(api, len(cut), lambda beginning: beginning).feed(cut, Pace()))
    endless = BrokersWalker(api, 1 << 30, lambda beginning: beginning)
    beginning = b"\x3f\xff\xff\xfc" + frame[4:8] + b"\x00\xff\xff\xff"
    finished(endless.feed(beginning, Pace()))
    broker = bytes(4) + b"\x7f\xff" + bytes(0x7FFF) + bytes(4)
    with pytest.raises(FrameSizeError):
        finished(endless.feed(broker * (MAX_REWRITTEN_RESPONSE_BYTES // len(broker) + 1), Pace()))
