"""Tokens and results are read from SaslHandshake and SaslAuthenticate in every version."""

import struct

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.messages.sasl import find_token, read_authenticate_answer, read_handshake_error, read_mechanism
from protocol.request_head import read_request_head
from tests.support.frames import sasl_frames as frames

VERSIONS = [API_VERSIONS[ApiKey.SASL_AUTHENTICATE << 16 | version] for version in range(3)]
BY_VERSION = pytest.mark.parametrize("api", VERSIONS, ids=lambda api: f"v{api.version}")


def body_at(frame: bytes) -> int:
    """Return the offset of the body of a request."""
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    return head.body_at


@BY_VERSION
@pytest.mark.parametrize("token", [b"", b"x", b"\0alice\0secret", bytes(300)])
def test_tokens_are_found(api: ApiVersion, token: bytes) -> None:
    """The token of a SaslAuthenticate request is found at its offsets."""
    frame = frames.authenticate(token, version=api.version)
    at, end = find_token(api, frame, body_at(frame))
    assert frame[at:end] == token


@BY_VERSION
@pytest.mark.parametrize(("error_code", "lifetime_ms"), [(0, 0), (0, 3_000), (58, 0)])
def test_answers_are_read(api: ApiVersion, error_code: int, lifetime_ms: int) -> None:
    """The error, token and session lifetime of a SaslAuthenticate response are read; v0 has no lifetime."""
    frame = frames.authenticate_answer(1, b"v=abc", version=api.version, error_code=error_code, lifetime_ms=lifetime_ms)
    answer = read_authenticate_answer(api, frame)
    assert (answer.error_code, frame[slice(*answer.token)]) == (error_code, b"v=abc")
    assert answer.session_lifetime_ms == (lifetime_ms if api.version else None)


def test_handshakes_are_read() -> None:
    """The mechanism and the error code of a SaslHandshake are read."""
    frame = frames.handshake("SCRAM-SHA-256")
    assert read_mechanism(frame, body_at(frame)) == "SCRAM-SHA-256"
    assert read_handshake_error(frames.handshake_answer(7, error_code=33)) == 33


@pytest.mark.parametrize("name", [b"", b"\xff", b"x" * 65])
def test_what_is_no_mechanism_is_refused(name: bytes) -> None:
    """A mechanism name that is empty, invalid or too long is refused."""
    with pytest.raises(BadRequestError):
        read_mechanism(bytes(8) + struct.pack(">h", len(name)) + name, 8)


@BY_VERSION
def test_every_cut_is_an_error_without_the_secret(api: ApiVersion) -> None:
    """A truncated message is refused, and the error does not contain the token."""
    request, answer = (
        frames.authenticate(b"\0alice\0canary", version=api.version),
        frames.authenticate_answer(1, b"v=canary", version=api.version),
    )
    at = body_at(request)
    for end in range(at, find_token(api, request, at).end):
        with pytest.raises(BadRequestError) as caught:
            find_token(api, request[:end], at)
        assert "canary" not in repr(caught.value)
    for end in range(8, len(answer) - (api.version == 2)):
        with pytest.raises(BadResponseError) as refused:
            read_authenticate_answer(api, answer[:end])
        assert "canary" not in repr(refused.value)
