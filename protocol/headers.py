"""Response headers v0 and v1. Request headers are read in `request_head`."""

from protocol.api_keys import ApiVersion
from protocol.errors import BadResponseError
from protocol.limits import LENGTH_BYTES, MAX_TAGGED_FIELD_BYTES, MAX_TAGGED_FIELDS, RESPONSE_HEAD_BYTES
from protocol.primitives import INT32, Buffer, IncompleteError, Reader

_CORRELATION_ID_BYTES = 4


def frame_end(data: Buffer, at: int) -> int:
    """Return the offset after the frame whose complete length field is at `at`."""
    end: int = at + LENGTH_BYTES + INT32.unpack_from(data, at)[0]
    return end


def response_header_len(api: ApiVersion, data: Buffer, at: int) -> int | None:
    """Return the bytes between the length field at `at` and the body: 4 without tagged fields (v0), 5 or more with them (v1).

    Returns:
        The length of the header, or None when more bytes are needed to tell.

    Raises:
        BadResponseError: the header does not fit into the frame or into its limits.
    """
    if api.response_header_version == 0:
        return _CORRELATION_ID_BYTES
    tags_at = at + RESPONSE_HEAD_BYTES
    if len(data) <= tags_at:
        return None
    if data[tags_at] == 0:
        return _CORRELATION_ID_BYTES + 1
    reader = Reader(data, tags_at, frame_end(data, at), BadResponseError)
    try:
        reader.skip_tag_section(max_fields=MAX_TAGGED_FIELDS, max_field_bytes=MAX_TAGGED_FIELD_BYTES)
    except IncompleteError:
        return None
    return reader.at - at - LENGTH_BYTES
