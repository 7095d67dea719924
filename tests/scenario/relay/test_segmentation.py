"""Rows D7 and D8: TCP segmentation changes neither what is parsed nor what it costs."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.limits import MAX_HEADER_BYTES
from proxy.enforcement.mode import Enforcement, Mode
from proxy.enforcement.quota_scopes import CallbackChoice, QuotaScopes
from proxy.session.request_context import RequestContext
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.pending_requests import Stop
from proxy.session.rewrite import ApiVersionsCut, Rewriter
from proxy.session.session import Session
from proxy.session.settings import SessionSettings
from proxy.telemetry.client_usage import UsageTable
from proxy.telemetry.counters import Counters
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import (
    FETCH,
    METADATA,
    PRODUCE,
    Node,
    acks_of,
    api_versions_answer,
    api_versions_request,
    correlation_id_of,
    fetch_answer,
    fetch_request,
    metadata_answer,
    metadata_request,
    produce_answer,
    produce_request,
    read_request,
    split_frames,
    throttle_ms_of,
    uvarint,
)

BROKER = ("10.0.0.1", 9092)


def in_steps(data: bytes, step: int) -> Iterator[bytes]:
    """Yield the bytes in pieces of `step`."""
    for at in range(0, len(data), step):
        yield data[at : at + step]


def open_session(mode: Mode, bound: float | None) -> tuple[Session, QuotaScopes]:
    """Return a session whose clients have this bound for Produce and for Fetch."""
    scopes = QuotaScopes(per_cluster=False, choice=CallbackChoice(), statics={})
    scopes.apply_table({} if bound is None else quotas(produce=bound, fetch=bound))
    cut = ApiVersionsCut(unknown_apis_pass=False)
    rewriter = Rewriter(lambda node_id, _host, _port: ("gateway", 9_100 + node_id), None, cut, redact_configs=True)
    session = Session(SessionSettings(Enforcement(mode), UsageTable(), Counters()), rewriter)
    session.count_in(scopes.of(BROKER))
    return session, scopes


def answer_of(frame: bytes) -> bytes:
    """Return the broker's response to a request."""
    asked = read_request(frame)
    if asked.key == PRODUCE:
        return b"" if acks_of(asked) == 0 else produce_answer(asked.version, asked.correlation_id)
    if asked.key == FETCH:
        return fetch_answer(asked.version, asked.correlation_id, bytes(asked.correlation_id))
    if asked.key == METADATA:
        return metadata_answer(asked.version, asked.correlation_id, [Node(1, *BROKER)])
    return api_versions_answer(asked.version, asked.correlation_id)


@dataclass
class Outcome:
    """The bytes and counts that result from a stream."""

    to_broker: bytes
    to_client: list[bytes]
    recorded: list[float]


def play(stream: bytes, step: int, answer_step: int, mode: Mode, bound: float | None, *, patient: bool = True) -> Outcome:
    """Send `stream` in pieces and answer in pieces, with a clock that jumps to each deadline; return what arrived.

    Args:
        stream: whole requests.
        step: bytes per piece of a request.
        answer_step: bytes per piece of a response.
        mode: the enforcement mode.
        bound: bytes per second, None for no quota.
        patient: False if held responses are sent at once, as when the broker closes.
    """
    session, scopes = open_session(mode, bound)
    now_ms = 1_000_000
    to_broker, to_client, answered = bytearray(), bytearray(), 0

    def keep(data: bytes | None, where: bytearray) -> None:
        where += data or b""

    for piece in in_steps(stream, step):
        keep(session.requests.scan(piece, now_ms, now_ms * 1_000_000), to_broker)
    while True:
        before = (len(to_broker), len(to_client), answered)
        frames, _ = split_frames(bytes(to_broker))
        answers = b"".join(answer_of(frame) for frame in frames[answered:])
        answered = len(frames)
        for piece in in_steps(answers, answer_step):
            keep(session.responses.scan(piece, now_ms, now_ms * 1_000_000), to_client)
        while session.responses.held.until_ms:
            now_ms = max(now_ms, session.responses.held.until_ms) if patient else now_ms
            keep(session.responses.held.release(now_ms), to_client)
        keep(session.responses.take_own_replies(now_ms) if session.in_flight else None, to_client)
        if session.requests.pending.stop is not Stop.NONE:
            now_ms = max(now_ms + 1, session.requests.pending.resume_at_ms, session.throttle.read_off_until_ms)
            keep(session.requests.resume(now_ms, now_ms * 1_000_000), to_broker)
        elif before == (len(to_broker), len(to_client), answered):
            break
    frames, rest = split_frames(bytes(to_client))
    assert rest == b""
    groups = [group for scope in scopes.all() for manager in (scope.produce, scope.fetch) for group in manager.groups()]
    return Outcome(bytes(to_broker), frames, [group.recorded_total for group in groups])


REQUESTS = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from([3, 8, 9, 10, 13]), st.integers(0, 300), st.sampled_from([0, 1, -1])),
    st.tuples(st.just("fetch"), st.sampled_from([4, 11, 12, 16, 18]), st.integers(0, 300), st.just(1)),
    st.tuples(st.just("metadata"), st.sampled_from([1, 8, 12, 13]), st.just(0), st.just(1)),
    st.tuples(st.just("api_versions"), st.sampled_from([0, 3, 4, 40]), st.just(0), st.just(1)),
)


def write(number: int, spec: tuple[str, int, int, int]) -> bytes:
    """Return one request of the stream; a Fetch's correlation id is also the size of its response."""
    kind, version, size, acks = spec
    client_id = b"client-%d" % (number % 3)
    if kind == "produce":
        return produce_request(number, bytes(size), version=version, acks=acks, client_id=client_id)
    if kind == "fetch":
        return fetch_request(number + size, version=version, client_id=client_id)
    if kind == "metadata":
        return metadata_request(number, version=version, client_id=client_id)
    return api_versions_request(number, version=version, client_id=client_id)


@example(
    specs=[("fetch", 16, 211, 1), ("produce", 3, 0, 0), ("metadata", 1, 0, 1), ("fetch", 4, 59, 1)],
    step=1,
    answer_step=198,
    mode=Mode.DELAY,
    bound=40.0,
    patient=True,
)  # one piece has the end of a rewritten response and the beginning of a held one
@settings(max_examples=300, deadline=None)
@given(
    specs=st.lists(REQUESTS, min_size=1, max_size=25),
    step=st.one_of(st.integers(1, 40), st.integers(41, 3_000)),
    answer_step=st.one_of(st.integers(1, 40), st.integers(41, 3_000)),
    mode=st.sampled_from(list(Mode)),
    bound=st.sampled_from([None, 1.0, 40.0, 1e9]),
    patient=st.booleans(),
)
def test_d08_any_segmentation_gives_the_same_bytes(
    specs: list[tuple[str, int, int, int]], step: int, answer_step: int, mode: Mode, bound: float | None, *, patient: bool
) -> None:
    """Any segmentation of requests and responses gives the same bytes on both sides and the same counts, except for throttle times."""
    stream = b"".join(write(number, spec) for number, spec in enumerate(specs))
    in_pieces = play(stream, step, answer_step, mode, bound, patient=patient)
    at_once = play(stream, len(stream), 1 << 20, mode, bound)
    assert in_pieces.to_broker == at_once.to_broker
    assert in_pieces.recorded == at_once.recorded
    assert [correlation_id_of(frame) for frame in in_pieces.to_client] == [correlation_id_of(frame) for frame in at_once.to_client]
    asked = [read_request(frame) for frame in split_frames(stream)[0]]
    answered = [request for request in asked if request.key != PRODUCE or acks_of(request) != 0]
    assert len(in_pieces.to_client) == len(answered)
    for request, one, other in zip(answered, in_pieces.to_client, at_once.to_client, strict=True):
        assert without_throttle(request.key, request.version, one) == without_throttle(request.key, request.version, other)


def without_throttle(key: int, version: int, frame: bytes) -> bytes:
    """Return a response with a throttle time of 0."""
    if key not in (PRODUCE, FETCH):
        return frame
    throttle = throttle_ms_of(key, version, frame).to_bytes(4, "big")
    at = frame.rindex(throttle) if key == PRODUCE else frame.index(throttle, 8)
    return frame[:at] + bytes(4) + frame[at + 4 :]


@pytest.mark.parametrize("step", [1, 7])
async def test_d07_a_few_bytes_at_a_time(step: int) -> None:
    """Requests that arrive in pieces of 1 or 7 bytes are parsed and answered like whole ones."""
    frame = produce_request(1, bytes(range(256)) * 4) + api_versions_request(2, version=40) + fetch_request(3)
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        client = await sluice.client()
        for piece in in_steps(frame, step):
            await client.send(piece)
        assert [correlation_id_of(answer) for answer in await client.read_frames(3)] == [1, 2, 3]
        assert [asked.correlation_id for asked in broker.connections[0].requests] == [1, 3]


def test_d07_a_long_head_in_single_bytes_is_read_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A header of the largest size that arrives byte by byte is parsed at most 8 times."""
    session, _ = open_session(Mode.DELAY, None)
    tries = 0
    resolve = session.requests._classifier.resolve

    def counting(data: bytes | bytearray, at: int, size: int) -> RequestContext | None:
        nonlocal tries
        tries += 1
        return resolve(data, at, size)

    monkeypatch.setattr(RequestClassifier, "resolve", lambda _heads, *arguments: counting(*arguments))
    fields = b"".join(uvarint(number) + uvarint(2_000) + bytes(2_000) for number in range(64))
    frame = produce_request(1, b"records", header_tags=uvarint(64) + fields, client_id=b"c" * 30_000)
    assert len(frame) < MAX_HEADER_BYTES
    out = bytearray()
    for piece in in_steps(frame, 1):
        out += session.requests.scan(piece, 1, 1_000_000) or b""
    assert out == frame
    assert tries <= 8
