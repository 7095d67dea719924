"""The tail of Fetch and ShareFetch answers: found in any pieces, and replaced without changing its length."""

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.layout import layout_of
from protocol.limits import MAX_WALK_BYTES
from protocol.messages.addresses import splice_report
from protocol.messages.fetch.tail import find_tail_in_steps, tail_is_bare
from protocol.messages.fetch.walker import FetchWalker
from protocol.messages.node_endpoints import blank_endpoints, tail_has_endpoints
from protocol.primitives import uvarint
from protocol.steps import finished
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import HOSTS, PORTS, bodies, frame_of

WALKED = [api for api in API_VERSIONS.values() if api.splice and api.key in (ApiKey.FETCH, ApiKey.SHARE_FETCH)]
BY_VERSION = pytest.mark.parametrize("api", WALKED, ids=lambda api: f"{api.name}-v{api.version}")
FETCH = API_VERSIONS[ApiKey.FETCH << 16 | 17]


def encoded_tail(api: ApiVersion, body: dict[str, Any]) -> bytes:
    """Return the end of a body as the model writes it: its tag section, preceded by the endpoints of a ShareFetch."""
    layout = layout_of(api.key, "response", api.version)
    kept = tuple(field for field in layout.fields if field.tag is not None or field.name == "NodeEndpoints")
    return layout_codec.encode(layout._replace(fields=kept), body)


@BY_VERSION
def test_the_tail_is_found_in_any_pieces(api: ApiVersion) -> None:
    """However a frame is split, the bytes before its tail are passed on, and the tail equals the model's."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=30, deadline=None)
    @given(body=bodies(layout, unknown_tags=True), pieces=st.lists(st.integers(1, 40), min_size=1, max_size=20))
    def check(body: dict[str, Any], pieces: list[int]) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        tail_at = len(frame) - len(encoded_tail(api, body))
        assert finished(find_tail_in_steps(api, frame)) == tail_at
        assert tail_is_bare(api, b"xx" + frame + b"yy", 2, 2 + len(frame)) is (frame[tail_at:] == b"\x00")
        walker, passed, at = FetchWalker(api, len(frame)), 0, 0
        while at < len(frame):
            end = min(at + pieces[at % len(pieces)], len(frame))
            assert passed == min(at, tail_at)
            passed += walker.feed(frame, at, end)
            assert walker.tail_at == (tail_at if end >= tail_at else -1)
            at = end
        assert passed == tail_at
        assert tail_has_endpoints(api, frame[tail_at:]) is bool(body.get("NodeEndpoints"))

    check()


@BY_VERSION
def test_addresses_in_a_tail_are_replaced_without_changing_its_length(api: ApiVersion) -> None:
    """After the replacement the frame has Sluice's addresses or none, and the same length and other fields."""
    layout = layout_of(api.key, "response", api.version)

    @settings(max_examples=40, deadline=None)
    @given(body=bodies(layout, unknown_tags=True), host=HOSTS, port=PORTS, odd_only=st.booleans())
    def check(body: dict[str, Any], host: str, port: int, odd_only: bool) -> None:
        def resolve(node_id: int, _host: str, _port: int) -> tuple[str, int] | None:
            return (host, port) if node_id % 2 or not odd_only else None

        frame = frame_of(api, layout_codec.encode(layout, body))
        tail_at = finished(find_tail_in_steps(api, frame))
        tail = blank_endpoints(api, frame[tail_at:], resolve)
        assert len(tail) == len(frame) - tail_at
        after, end = layout_codec.decode(layout, frame[:tail_at] + tail, 8 + api.response_header_version)
        assert end == len(frame)
        before = body.get("NodeEndpoints") or []
        ours = [entry | dict(zip(("Host", "Port"), found, strict=True)) for entry in before if (found := seen(entry, resolve)) is not None]
        assert (after.get("NodeEndpoints") or []) in (ours, [])
        kept, unknown = body[layout_codec.UNKNOWN], after.get(layout_codec.UNKNOWN, [])
        assert unknown[: len(kept)] == kept
        padding = unknown[len(kept) :]
        assert len(padding) <= (2 if tail != frame[tail_at:] else 0)
        assert not any(byte for _, value in padding for byte in value)

    check()


def seen(entry: dict[str, Any], resolve: Any) -> tuple[str, int] | None:
    """Return the entry that clients should see; "no node" stays as it is."""
    if entry["NodeId"] < 0 and not entry["Host"]:
        return entry["Host"], entry["Port"]
    found: tuple[str, int] | None = resolve(entry["NodeId"], entry["Host"], entry["Port"])
    return found


def one_endpoint(host: bytes) -> bytes:
    """Return the tail of a Fetch answer with one endpoint."""
    value = b"\x02" + struct.pack(">i", 1) + bytes([len(host) + 1]) + host + struct.pack(">i", 9092) + b"\x00\x00"
    return b"\x01\x00" + layout_codec.uvarint(len(value)) + value


@pytest.mark.parametrize("shorter_by", [*range(-2, 5), 40])
def test_endpoints_of_every_length(shorter_by: int) -> None:
    """An endpoint is written when it fits exactly or leaves room for an empty tagged field; with one byte less it is left out."""
    tail = one_endpoint(b"h" * 60)
    ours = "s" * (60 - shorter_by)
    found: list[tuple[int, str, int]] = []
    after = blank_endpoints(FETCH, tail, lambda *_: (ours, 1))
    frame = frame_of(FETCH, bytes(10) + b"\x01" + after)
    splice_report(FETCH, frame, lambda *entry: found.append(entry))
    assert found == ([(1, ours, 1)] if shorter_by == 0 or shorter_by >= 2 else [])
    assert len(after) == len(tail)
    assert b"h" * 10 not in after


@pytest.mark.parametrize("other_tag", [5, 126, 127, 200, 16_382, 16_383, 16_393, 2_097_151])
def test_every_length_of_padding_can_be_written(other_tag: int) -> None:
    """A padding of every length can be written, also where its own size or a longer tag number takes a byte more."""
    for host_bytes in range(1, 126):
        tail = b"\x02" + one_endpoint(b"h" * host_bytes)[1:] + layout_codec.uvarint(other_tag) + b"\x00"
        assert len(blank_endpoints(FETCH, tail, lambda *_: None)) == len(tail)
    for length in range(2, 400):
        tail = b"\x02" + one_endpoint(b"a" * 20)[1:] + layout_codec.uvarint(other_tag) + layout_codec.uvarint(length) + bytes(length)
        assert len(blank_endpoints(FETCH, tail, lambda *_: None)) == len(tail)
    for host_bytes in range(1, 126):
        tail = one_endpoint(b"h" * host_bytes)
        after = blank_endpoints(FETCH, tail, lambda *_: None)
        assert len(after) == len(tail)
        assert not tail_has_endpoints(FETCH, after)


def test_an_address_that_is_ours_already_changes_nothing() -> None:
    """A tail whose addresses are already Sluice's is returned unchanged."""
    tail = one_endpoint(b"sluice")
    assert blank_endpoints(FETCH, tail, lambda _id, host, port: (host, port)) is tail


def test_records_are_never_kept() -> None:
    """A walker over a gigabyte of records keeps only a few numbers."""
    partition = bytes(30) + b"\x00" + bytes(4) + b"\x81\x80\x80\x80\x04"  # records of 2^30 bytes
    head = frame_of(FETCH, bytes(10) + b"\x02" + bytes(16) + b"\x02" + partition)
    frame_bytes = len(head) + 2**30 + 3
    walker = FetchWalker(FETCH, frame_bytes)
    assert walker.feed(head, 0, len(head)) == len(head)
    chunk = bytes(2**20)
    for _ in range(2**10):
        assert walker.feed(chunk, 0, len(chunk)) == len(chunk)
    assert walker.feed(b"\x00\x00\x00", 0, 3) == 2
    assert walker.tail_at == frame_bytes - 1


def long_answer(records_bytes: int, tail: bytes) -> bytes:
    """Return a whole Fetch answer with one partition; `tail` is all that follows its records."""
    partition = bytes(30) + b"\x00" + bytes(4) + uvarint(records_bytes + 1)
    return frame_of(FETCH, bytes(10) + b"\x02" + bytes(16) + b"\x02" + partition + bytes(records_bytes) + tail)


def walked(frame: bytes, cuts: tuple[int, int], *, at_once: bool) -> list[Any]:
    """Return what is known after each of three pieces of `frame`, or the error that ends the walk."""
    walker, seen_after = FetchWalker(FETCH, len(frame)), []
    for start, end in pairwise((0, *cuts, len(frame))):
        try:
            if at_once and walker.pass_plain(frame[start:end]):
                passed = end - start if walker.tail_at < 0 else walker.tail_at - start
            else:
                passed = walker.feed(frame, start, end)
        except BadResponseError as error:
            return [*seen_after, str(error)]
        seen_after.append((passed, walker.tail_at, walker.passing_bytes, *(walker.state if walker.tail_at < 0 else ())))
        if walker.tail_at >= 0:
            break
    return seen_after


@settings(max_examples=300, deadline=None)
@given(
    records_bytes=st.integers(100, 20_000),
    tail=st.sampled_from([bytes(3), bytes(4), bytes(2), b"\x00\x00" + one_endpoint(b"host"), b"\x01\x05\x00\x00\x00"]),
    behind_head=st.integers(-12, 80),
    tail_cut=st.integers(-2, 2),
    changed=st.none() | st.tuples(st.integers(8, 80), st.integers(0, 255)),
)
def test_one_step_over_a_plain_piece_ends_where_many_do(
    records_bytes: int, tail: bytes, behind_head: int, tail_cut: int, changed: tuple[int, int] | None
) -> None:
    """A piece that is followed in one step leaves the walker as if it had been parsed, also when a byte of the head is another."""
    frame = bytearray(long_answer(records_bytes, tail))
    if changed is not None:
        frame[changed[0]] = changed[1]
    cuts = 76 + behind_head, len(frame) - len(tail) + min(tail_cut, len(tail))
    assert walked(bytes(frame), cuts, at_once=True) == walked(bytes(frame), cuts, at_once=False)


def test_a_plain_answer_takes_one_step_for_each_piece() -> None:
    """The beginning of an answer with one partition, and what follows its records, are followed in one step each."""
    frame = long_answer(10_000, bytes(3))
    walker = FetchWalker(FETCH, len(frame))
    assert walker.pass_plain(frame[:1_000])
    assert walker.passing_bytes == len(frame) - 1_003
    assert not walker.pass_plain(frame[1_000:2_000])  # records are passed on
    walker.pass_on(walker.passing_bytes)
    assert not walker.pass_plain(b"\x00\x00\x01")
    assert walker.pass_plain(frame[-3:])
    assert walker.tail_at == len(frame) - 1


@pytest.mark.parametrize(
    ("body", "declared"),
    [
        pytest.param(
            bytes(10) + b"\x02" + bytes(16) + b"\x02" + bytes(30) + b"\x00" + bytes(4) + b"\xff\xff\xff\xff\x07", 100, id="past-the-frame"
        ),
        pytest.param(bytes(10) + b"\xff\xff\xff\xff\xff\x01", 100, id="endless-varint"),
        pytest.param(bytes(10) + b"\x01" + bytes(MAX_WALK_BYTES + 1), MAX_WALK_BYTES + 100, id="tail-too-large"),
    ],
)
def test_what_cannot_be_walked_is_refused(body: bytes, declared: int) -> None:
    """A malformed answer is refused, so that no address of it is forwarded."""
    frame = frame_of(FETCH, body)
    with pytest.raises(BadResponseError):
        FetchWalker(FETCH, max(declared, len(frame))).feed(frame, 0, len(frame))


@pytest.mark.parametrize("tag", [5, 127, 2**14 - 1, 2**21 - 1, 2**28 - 1])
def test_a_tail_of_any_length_keeps_it(tag: int) -> None:
    """A tail with addresses of any length and any further tags keeps its length to the byte."""
    api = API_VERSIONS[ApiKey.SHARE_FETCH << 16 | 1]
    for size in range(1, 400):
        host = uvarint(size + 1) + b"h" * size
        tail = b"\x02" + bytes(4) + host + bytes(3) + b"\x01" + b"\x00" + b"\x00" + b"\x01" + uvarint(tag) + b"\x00"
        blanked = blank_endpoints(api, tail, lambda *_: None)
        assert len(blanked) == len(tail)
        assert b"hh" not in blanked
