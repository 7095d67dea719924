"""SaslHandshake and SaslAuthenticate: the place of tokens in every version."""

import struct

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.messages.sasl import find_token, read_authenticate_answer, read_handshake_error, read_mechanism
from tests.support.frames import sasl_frames as frames
from tests.support.frames.config_frames import body_at

VERSIONS = [API_VERSIONS[ApiKey.SASL_AUTHENTICATE << 16 | version] for version in range(3)]
BY_VERSION = pytest.mark.parametrize("api", VERSIONS, ids=lambda api: f"v{api.version}")


@BY_VERSION
@pytest.mark.parametrize("token", [b"", b"x", b"\0alice\0secret", bytes(300)])
def test_tokens_are_found(api: ApiVersion, token: bytes) -> None:
    """The reported place of a token holds exactly the token."""
    frame = frames.authenticate(token, version=api.version)
    at, end = find_token(api, frame, body_at(frame))
    assert frame[at:end] == token


@BY_VERSION
@pytest.mark.parametrize(("error_code", "lifetime_ms"), [(0, 0), (0, 3_000), (58, 0)])
def test_answers_are_read(api: ApiVersion, error_code: int, lifetime_ms: int) -> None:
    """Error, token and lifetime equal those that the broker wrote; v0 has no lifetime."""
    frame = frames.authenticate_answer(1, b"v=abc", version=api.version, error_code=error_code, lifetime_ms=lifetime_ms)
    answer = read_authenticate_answer(api, frame)
    assert (answer.error_code, frame[slice(*answer.token)]) == (error_code, b"v=abc")
    assert answer.session_lifetime_ms == (lifetime_ms if api.version else None)


def test_handshakes_are_read() -> None:
    """Mechanism and error code are read in every version."""
    frame = frames.handshake("SCRAM-SHA-256")
    assert read_mechanism(frame, body_at(frame)) == "SCRAM-SHA-256"
    assert read_handshake_error(frames.handshake_answer(7, error_code=33)) == 33


@pytest.mark.parametrize("name", [b"", b"\xff", b"x" * 65])
def test_what_is_no_mechanism_is_refused(name: bytes) -> None:
    """A name that cannot be a mechanism's is a bad request."""
    with pytest.raises(BadRequestError):
        read_mechanism(bytes(8) + struct.pack(">h", len(name)) + name, 8)


@BY_VERSION
def test_every_cut_is_an_error_without_the_secret(api: ApiVersion) -> None:
    """A truncated message is refused, and the error text contains nothing of its token."""
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
