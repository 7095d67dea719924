"""ApiVersions responses (18): cut to what Sluice can handle, and written anew where a broker's answer cannot be used."""

from collections.abc import Container, Mapping

UNSUPPORTED_VERSION = 35
"""Kafka's error code for a version that the broker does not know."""


def error_code(frame: bytes) -> int:
    """Return the error code of an ApiVersions response; it stands at the same place in all versions."""
    raise NotImplementedError


def read_api_keys(version: int, frame: bytes) -> list[tuple[int, int, int]]:
    """Return (key, lowest version, highest version) of every entry, in wire order. An error-35 answer is read as v0."""
    raise NotImplementedError


def intersect(version: int, frame: bytes, maximum: Mapping[int, int], drop: Container[int], own: Mapping[int, tuple[int, int]]) -> bytes:
    """Return the response `frame` (to a request of `version`) with its ranges cut.

    A key in `own` gets exactly that range; else a key in `drop` goes; else its maximum is capped by `maximum` and it goes when
    nothing remains. Keys of `own` that the broker lacks are appended. All else survives byte for byte, and an answer with
    error 35 is returned as it is.

    Raises:
        BadResponseError: the frame does not read as its version says.
    """
    raise NotImplementedError


def fallback_response(correlation_id: int, max_version: int) -> bytes:
    """Write the v0 answer with error 35 that names the versions of ApiVersions itself (KIP-511)."""
    raise NotImplementedError


def repair(version: int, frame: bytes, max_version: int) -> bytes:
    """Return `frame`, or a well-formed answer when it is an error-35 answer that does not read as v0.

    librdkafka's mock cluster writes such answers: an element count of one byte where v0 has four.
    """
    raise NotImplementedError


def request_v0(correlation_id: int, client_id: str) -> bytes:
    """Write an ApiVersions request v0, which every broker answers."""
    raise NotImplementedError
