"""SaslHandshake (17) and SaslAuthenticate (36): the mechanism, the position of the token, and the broker's result.

Tokens are secrets: nothing here copies one. The caller gets its position in the frame.
"""

from typing import Final, NamedTuple

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.headers import response_header_len
from protocol.limits import LENGTH_BYTES, MAX_MECHANISM_BYTES, RESPONSE_HEAD_BYTES
from protocol.primitives import INT16, INT32, INT64, Buffer, IncompleteError, Reader, string, with_length

_SINCE_LIFETIME = 1
_HANDSHAKE_VERSION = 1
AUTHENTICATE: Final = API_VERSIONS[ApiKey.SASL_AUTHENTICATE << 16 | _SINCE_LIFETIME]
"""The version of Sluice's own requests: the first that returns the session lifetime (Kafka 2.2)."""


class TokenPlace(NamedTuple):
    """Position of a token in its frame."""

    at: int
    end: int


class AuthenticateAnswer(NamedTuple):
    """The broker's response to a token.

    Attributes:
        error_code: 0 also while more tokens are needed.
        token: position of the broker's own token.
        session_lifetime_ms: lifetime of the session, 0 for the whole connection; None: this version does not have it.
    """

    error_code: int
    token: TokenPlace
    session_lifetime_ms: int | None


def read_mechanism(frame: Buffer, body_at: int) -> str:
    """Return the mechanism that a SaslHandshake requests.

    Raises:
        BadRequestError: the request is invalid, or the mechanism is not a valid name.
    """
    try:
        name = Reader(frame, body_at, len(frame), BadRequestError).nullable_string_bytes(compact=False)
    except IncompleteError:
        name = None
    if not name or len(name) > MAX_MECHANISM_BYTES or not name.isascii():
        raise BadRequestError("a SASL handshake without the name of a mechanism")
    return name.decode("ascii")


def find_token(api: ApiVersion, frame: Buffer, body_at: int) -> TokenPlace:
    """Return the position of the token of a SaslAuthenticate request.

    Raises:
        BadRequestError: the request is invalid; the message contains nothing of it.
    """
    try:
        return _token(Reader(frame, body_at, len(frame), BadRequestError), compact=api.flexible)
    except IncompleteError:
        raise BadRequestError("a SASL token that goes past the end of its frame") from None


def read_handshake_error(frame: Buffer) -> int:
    """Return the error code of a SaslHandshake response; its header is always v0.

    Raises:
        BadResponseError: the response has none.
    """
    if len(frame) < RESPONSE_HEAD_BYTES + INT16.size:
        raise BadResponseError(f"a SASL handshake response of {len(frame)} bytes")
    code: int = INT16.unpack_from(frame, RESPONSE_HEAD_BYTES)[0]
    return code


def read_authenticate_answer(api: ApiVersion, frame: Buffer) -> AuthenticateAnswer:
    """Read the broker's response to a token.

    Raises:
        BadResponseError: it does not match its version.
    """
    try:
        header_bytes = response_header_len(api, frame, 0)
        reader = Reader(frame, len(frame) if header_bytes is None else LENGTH_BYTES + header_bytes, len(frame), BadResponseError)
        error_code = reader.int16()
        reader.skip(max(0, reader.string_length(compact=api.flexible)))  # an error message, which may contain names
        token = _token(reader, compact=api.flexible)
        if api.version < _SINCE_LIFETIME:
            return AuthenticateAnswer(error_code, token, None)
        (lifetime_ms,) = INT64.unpack_from(frame, reader.skip(INT64.size))
        return AuthenticateAnswer(error_code, token, lifetime_ms)
    except IncompleteError:
        raise BadResponseError("a SaslAuthenticate response that ends too early") from None


def _token(reader: Reader, *, compact: bool) -> TokenPlace:
    count = max(0, reader.length(compact=compact))
    at = reader.skip(count)
    return TokenPlace(at, at + count)


def read_mechanisms(frame: Buffer) -> list[str]:
    """Return the mechanisms that a SaslHandshake response offers.

    Raises:
        BadResponseError: it cannot be read.
    """
    try:
        reader = Reader(frame, RESPONSE_HEAD_BYTES + INT16.size, len(frame), BadResponseError)
        return [reader.string(compact=False) for _ in range(reader.length(compact=False))]
    except IncompleteError:
        raise BadResponseError("a SASL handshake response that ends too early") from None


def handshake_request(correlation_id: int, client_id: str, mechanism: str) -> bytes:
    """Return a SaslHandshake request of Sluice's own."""
    head = _head(ApiKey.SASL_HANDSHAKE, _HANDSHAKE_VERSION, correlation_id, client_id)
    return with_length(head + string(mechanism, compact=False))


def authenticate_request(correlation_id: int, client_id: str, token: bytes) -> bytes:
    """Return a SaslAuthenticate request of Sluice's own; its response has the version `AUTHENTICATE`."""
    head = _head(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE.version, correlation_id, client_id)
    return with_length(head + with_length(token))


def _head(key: ApiKey, version: int, correlation_id: int, client_id: str) -> bytes:
    return INT16.pack(key) + INT16.pack(version) + INT32.pack(correlation_id) + string(client_id, compact=False)
