"""Hypothesis strategies for messages that a broker could write, from the tables of `apis.json`."""

import struct
from typing import Any

from hypothesis import strategies as st

from protocol.api_keys import ApiVersion
from protocol.layout import Field, Layout, layout_of
from tests.support.frames import layout_codec

BODY_AT = {0: 8, 1: 9}
"""Offset of the body by version of the response header, without tagged fields there."""

_RANGES = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_MILLISECONDS = st.integers(0, 2**40)  # kio reads them as a date, which is limited to the year 9999
_ERROR_CODES = st.sampled_from([0, 3, 6, 16, 35, 74, 76])
NODE_IDS = st.sampled_from([-1, 0, 1, 2, 3, 1001, 2**31 - 1])
HOSTS = st.text(max_size=12) | st.integers(100, 300).map("h".__mul__) | st.sampled_from(["", "localhost", "2001:db8::2"])
PORTS = st.integers(-1, 65535)


def bodies(layout: Layout, *, unknown_tags: bool = False) -> st.SearchStrategy[dict[str, Any]]:
    """Return message bodies in the form of `layout_codec`."""
    return _structs(layout.fields, flexible=layout.flexible, unknown_tags=unknown_tags)


def frames(api: ApiVersion, layout: Layout | None = None, *, unknown_tags: bool = False) -> st.SearchStrategy[bytes]:
    """Return complete response frames, without tagged fields in their headers."""
    used = layout or layout_of(api.key, "response", api.version)
    return bodies(used, unknown_tags=unknown_tags).map(lambda body: frame_of(api, layout_codec.encode(used, body)))


def frame_of(api: ApiVersion, body: bytes, correlation_id: int = 7) -> bytes:
    """Put a response header and a length before a body."""
    header = struct.pack(">i", correlation_id) + bytes(api.response_header_version)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _structs(fields: tuple[Field, ...], *, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[dict[str, Any]]:
    required = {field.name: _values(field, flexible=flexible, unknown_tags=unknown_tags) for field in fields if field.tag is None}
    optional = {field.name: _values(field, flexible=flexible, unknown_tags=unknown_tags) for field in fields if field.tag is not None}
    if flexible and unknown_tags:
        tags = st.integers(50, 2_000_000_000)
        some = st.dictionaries(tags, st.binary(max_size=140), max_size=2).map(lambda found: sorted(found.items()))
        required[layout_codec.UNKNOWN] = some
    return st.fixed_dictionaries(required, optional=optional)


def _values(field: Field, *, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    one = _ones(field, flexible=flexible, unknown_tags=unknown_tags)
    several = st.lists(one, max_size=3) if field.is_array else one
    return st.none() | several if field.nullable else several


def _ones(field: Field, *, flexible: bool, unknown_tags: bool) -> st.SearchStrategy[Any]:
    if field.fields:
        return _structs(field.fields, flexible=flexible, unknown_tags=unknown_tags)
    named = {
        "NodeId": NODE_IDS,
        "BrokerId": NODE_IDS,
        "Host": HOSTS,
        "Port": PORTS,
        "ErrorCode": _ERROR_CODES,
        "AcknowledgeErrorCode": _ERROR_CODES,
        "EndpointType": st.sampled_from([1, 1, 1, 2]),
        "LogAppendTimeMs": _MILLISECONDS,
        "ThrottleTimeMs": st.integers(0, 2**31 - 1),
        "AcquisitionLockTimeoutMs": st.integers(0, 2**31 - 1),
        "TimeoutMs": st.integers(0, 2**31 - 1),
        "MaxWaitMs": st.integers(0, 2**31 - 1),
    }
    if field.name in named:
        return named[field.name]
    if field.type in _RANGES:
        bits = _RANGES[field.type]
        return st.integers(-(2**bits), 2**bits - 1)
    return {
        "bool": st.booleans(),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=10),
        "bytes": st.binary(max_size=20),
        "records": st.binary(max_size=200),
        "uint16": st.integers(0, 2**16 - 1),
    }[field.type]


@st.composite
def damaged(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Return a frame with bytes overwritten, or truncated, or both; its length is adjusted, so only its body is wrong."""
    frame = bytearray(draw(whole))
    body_at = 8
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(body_at, len(frame) - 1)) if len(frame) > body_at else body_at - 1
        frame[at] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    if draw(st.booleans()):
        del frame[draw(st.integers(body_at, len(frame))) :]
    frame[:4] = struct.pack(">i", len(frame) - 4)
    return bytes(frame)
