"""Requests and answers of a SASL login, written by hand."""

import struct


def _framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def _header(key: int, version: int, correlation_id: int, client_id: str, *, flexible: bool = False) -> bytes:
    name = client_id.encode()
    return struct.pack(">hhih", key, version, correlation_id, len(name)) + name + (b"\0" if flexible else b"")


def _compact(data: bytes) -> bytes:
    """Return bytes with the compact length of flexible versions; at most 16 KiB."""
    length = len(data) + 1
    return (bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])) + data


def handshake(mechanism: str, *, version: int = 1, correlation_id: int = 1, client_id: str = "app") -> bytes:
    """Return a SaslHandshake request."""
    name = mechanism.encode()
    return _framed(_header(17, version, correlation_id, client_id) + struct.pack(">h", len(name)) + name)


def handshake_answer(correlation_id: int, *, error_code: int = 0) -> bytes:
    """Return the answer to a SaslHandshake; it names one mechanism."""
    return _framed(struct.pack(">ihih", correlation_id, error_code, 1, 5) + b"PLAIN")


def authenticate(token: bytes, *, version: int = 1, correlation_id: int = 2, client_id: str = "app") -> bytes:
    """Return a SaslAuthenticate request."""
    if version == 2:
        return _framed(_header(36, 2, correlation_id, client_id, flexible=True) + _compact(token) + b"\0")
    return _framed(_header(36, version, correlation_id, client_id) + struct.pack(">i", len(token)) + token)


def authenticate_answer(
    correlation_id: int, token: bytes = b"", *, version: int = 1, error_code: int = 0, message: str | None = None, lifetime_ms: int = 0
) -> bytes:
    """Return the answer to a SaslAuthenticate."""
    said = (message or "").encode()
    if version == 2:
        text = b"\0" if message is None else _compact(said)
        return _framed(struct.pack(">ibh", correlation_id, 0, error_code) + text + _compact(token) + struct.pack(">q", lifetime_ms) + b"\0")
    text = struct.pack(">h", -1 if message is None else len(said)) + said
    lifetime = struct.pack(">q", lifetime_ms) if version else b""
    return _framed(struct.pack(">ih", correlation_id, error_code) + text + struct.pack(">i", len(token)) + token + lifetime)


def bare(token: bytes) -> bytes:
    """Return a token in the form that follows a handshake v0."""
    return _framed(token)
