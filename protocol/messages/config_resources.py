"""DescribeConfigs (32) and IncrementalAlterConfigs (44): requests reduced to some resources, and results merged into responses.

KIP-422 proposed quotas as configurations of users and clients. No release of Kafka has such resources, so Sluice takes
them out of requests; all other bytes of a request and of its response stay the same.
Source: Kafka's `DescribeConfigsRequest.json`, `IncrementalAlterConfigsRequest.json` and their responses.
"""

from collections.abc import Container, Sequence
from typing import Final, NamedTuple

from protocol.api_keys import ApiKey, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.headers import response_header_len
from protocol.layout import Skip, layout_from, reading, skip_field
from protocol.limits import LENGTH_BYTES, MAX_STRING_BYTES, RESPONSE_HEAD_BYTES
from protocol.messages.describe_configs import LAYOUT
from protocol.primitives import INT16, INT32, Buffer, Reader, string, uvarint, with_length
from protocol.steps import Pace, Steps

CLIENT: Final = 1
USER: Final = 3
"""KIP-422's resource types; Kafka's own are 2 (topic), 4 (broker) and higher."""
QUOTA_TYPES: Final = frozenset({CLIENT, USER})

SET: Final = 0
DELETE: Final = 1

_SYNONYMS_SINCE, _TYPES_SINCE = 1, 3
_FLAGS: Final = {int(ApiKey.DESCRIBE_CONFIGS): (0, 1, 1, 2, 2), int(ApiKey.INCREMENTAL_ALTER_CONFIGS): (1, 1)}
"""Number of flags after the resources, by version."""


class ConfigOp(NamedTuple):
    """One change: operation 0 sets, 1 deletes, 2 and 3 append to and remove from lists."""

    name: str
    operation: int
    value: str | None


class ConfigResource(NamedTuple):
    """One resource of a request.

    Attributes:
        keys: DescribeConfigs: the requested keys, None for all. Empty in the other API.
        ops: IncrementalAlterConfigs.
        at, end: offsets of its first byte and of the next resource in the frame.
    """

    type: int
    name: str
    keys: tuple[str, ...] | None
    ops: tuple[ConfigOp, ...]
    at: int
    end: int


class ConfigRequest(NamedTuple):
    """A whole request.

    Attributes:
        array_at: offset of the number of resources.
        flags: DescribeConfigs: synonyms, documentation, as far as the version has them; IncrementalAlterConfigs: validate only.
    """

    resources: tuple[ConfigResource, ...]
    array_at: int
    flags: tuple[bool, ...]


class ConfigValue(NamedTuple):
    """One configuration: `type` is Kafka's number of its value type."""

    name: str
    value: str
    source: int
    type: int
    documentation: str


class ResultPlace(NamedTuple):
    """The place of a resource's result in a response."""

    type: int
    name: str
    at: int
    end: int


def names_quotas(api: ApiVersion, frame: Buffer, body_at: int) -> Steps[bool]:
    """Return whether a request names a user or a client; parsed in steps.

    Raises:
        BadRequestError: it does not match its version.
    """
    reader = Reader(frame, body_at, len(frame), BadRequestError)
    has_ops = api.key == ApiKey.INCREMENTAL_ALTER_CONFIGS
    pace = Pace()
    found = False
    for _ in range(max(0, reader.length(compact=api.flexible))):
        found |= reader.raw(1)[0] in QUOTA_TYPES
        _skip_string(reader, api)
        for _ in range(max(0, reader.length(compact=api.flexible))):
            _skip_string(reader, api)
            if has_ops:
                reader.skip(1)
                _skip_string(reader, api)
                yield from _skip_tags_in_steps(reader, api, pace)
            if pace.due():
                yield
        yield from _skip_tags_in_steps(reader, api, pace)
        if pace.due():
            yield
    return found


def read_config_request(api: ApiVersion, frame: bytes, body_at: int) -> ConfigRequest:
    """Parse a whole request whose body begins at `body_at`.

    Raises:
        BadRequestError: it does not match its version.
    """
    reader = Reader(frame, body_at, len(frame), BadRequestError)
    resources = tuple(_read_resource(reader, api) for _ in range(max(0, reader.length(compact=api.flexible))))
    flags = tuple(reader.raw(1) != b"\x00" for _ in range(_FLAGS[api.key][api.version]))
    return ConfigRequest(resources, body_at, flags)


def cut_config_request(api: ApiVersion, frame: bytes, request: ConfigRequest, keep: Container[int], correlation_id: int) -> bytes:
    """Return the request with only the resources whose index is in `keep`, and with another correlation id."""
    kept = [frame[one.at : one.end] for place, one in enumerate(request.resources) if place in keep]
    count = uvarint(len(kept) + 1) if api.flexible else INT32.pack(len(kept))
    head = frame[LENGTH_BYTES:RESPONSE_HEAD_BYTES] + INT32.pack(correlation_id) + frame[RESPONSE_HEAD_BYTES + 4 : request.array_at]
    return with_length(b"".join((head, count, *kept, frame[request.resources[-1].end :])))


def plain_result(api: ApiVersion, error_code: int, message: str | None, resource: ConfigResource) -> bytes:
    """Return the result for a resource without configurations: an error, or success."""
    return _result(api, error_code, message, resource, ())


def described_result(api: ApiVersion, request: ConfigRequest, resource: ConfigResource, configs: Sequence[ConfigValue]) -> bytes:
    """Return the result of a description."""
    wants_synonyms = request.flags[:1] == (True,)
    wants_documentation = request.flags[1:2] == (True,)
    written = [_config(api, config, synonyms=wants_synonyms, documentation=wants_documentation) for config in configs]
    return _result(api, 0, None, resource, written)


def answer_of(api: ApiVersion, correlation_id: int, results: Sequence[bytes]) -> bytes:
    """Return a response that consists of these results only."""
    header = INT32.pack(correlation_id) + b"\x00" * api.response_header_version
    throttle_ms = INT32.pack(0)
    return with_length(header + throttle_ms + _array(api, results) + b"\x00" * api.flexible)


def joined_answer(api: ApiVersion, frame: bytes, correlation_id: int, request: ConfigRequest, ours: dict[int, bytes]) -> bytes:
    """Return the broker's response `frame` with Sluice's results inserted at their indexes in the request.

    Raises:
        BadResponseError: it does not match its version.
    """
    places, array_at, entries_end = _read_results(api, frame)
    theirs: dict[tuple[int, str], list[bytes]] = {}
    for one in places:
        theirs.setdefault((one.type, one.name), []).append(frame[one.at : one.end])
    results: list[bytes] = []
    for place, resource in enumerate(request.resources):
        found = theirs.get((resource.type, resource.name))
        if place in ours:
            results.append(ours[place])
        elif found:
            results.append(found.pop(0))
    results += [one for found in theirs.values() for one in found]
    header = INT32.pack(correlation_id) + frame[RESPONSE_HEAD_BYTES:array_at]
    return with_length(header + _array(api, results) + frame[entries_end:])


def _read_results(api: ApiVersion, frame: bytes) -> tuple[list[ResultPlace], int, int]:
    header_len = response_header_len(api, frame, 0)
    if header_len is None:
        raise BadResponseError("the frame ends inside its header")
    reader = Reader(frame, LENGTH_BYTES + header_len, len(frame))
    reader.int32()  # throttle time
    array_at = reader.at
    places = [_read_result(reader, api, frame) for _ in range(max(0, reader.length(compact=api.flexible)))]
    return places, array_at, reader.at


def _read_result(reader: Reader, api: ApiVersion, frame: bytes) -> ResultPlace:
    at = reader.at
    reader.int16()
    _skip_string(reader, api)
    kind, name = reader.raw(1)[0], reader.string(compact=api.flexible)
    if api.key == ApiKey.DESCRIBE_CONFIGS:
        with reading():
            reader.skip(_SKIP_CONFIGS[api.version](frame, reader.at) - reader.at)
    _skip_tags(reader, api)
    return ResultPlace(kind, name, at, reader.at)


def _read_resource(reader: Reader, api: ApiVersion) -> ConfigResource:
    at = reader.at
    kind, name = reader.raw(1)[0], _text(reader, api)
    count = reader.length(compact=api.flexible)
    keys: tuple[str, ...] | None = ()
    ops: tuple[ConfigOp, ...] = ()
    if api.key == ApiKey.DESCRIBE_CONFIGS:
        keys = None if count < 0 else tuple(_text(reader, api) for _ in range(count))
    else:
        ops = tuple(_read_op(reader, api) for _ in range(max(0, count)))
    _skip_tags(reader, api)
    return ConfigResource(kind, name, keys, ops, at, reader.at)


def _read_op(reader: Reader, api: ApiVersion) -> ConfigOp:
    op = ConfigOp(_text(reader, api), reader.raw(1)[0], reader.nullable_string(compact=api.flexible))
    _skip_tags(reader, api)
    return op


def _text(reader: Reader, api: ApiVersion) -> str:
    text = reader.nullable_string(compact=api.flexible)
    if text is None:
        raise BadRequestError("null in a field that cannot be null")
    return text


def _skip_tags_in_steps(reader: Reader, api: ApiVersion, pace: Pace) -> Steps[None]:
    if not api.flexible:
        return
    for _ in range(reader.uvarint()):
        reader.uvarint()
        reader.skip(reader.uvarint())
        if pace.due():
            yield


def _skip_string(reader: Reader, api: ApiVersion) -> None:
    reader.skip(max(0, reader.string_length(compact=api.flexible)))


def _skip_tags(reader: Reader, api: ApiVersion) -> None:
    if api.flexible:
        reader.skip_tag_section()


def _result(api: ApiVersion, error_code: int, message: str | None, resource: ConfigResource, configs: Sequence[bytes]) -> bytes:
    written = INT16.pack(error_code) + _nullable(api, message) + bytes((resource.type,)) + _string(api, resource.name)
    if api.key == ApiKey.DESCRIBE_CONFIGS:
        written += _array(api, configs)
    return written + b"\x00" * api.flexible


def _config(api: ApiVersion, config: ConfigValue, *, synonyms: bool, documentation: bool) -> bytes:
    version, tags = api.version, b"\x00" * api.flexible
    read_only = sensitive = is_default = b"\x00"
    source = bytes((config.source,))
    named = _string(api, config.name) + _string(api, config.value)
    written = named + read_only + (source if version >= _SYNONYMS_SINCE else is_default) + sensitive
    if version >= _SYNONYMS_SINCE:
        written += _array(api, [named + source + tags] if synonyms else [])
    if version >= _TYPES_SINCE:
        written += bytes((config.type,)) + _nullable(api, config.documentation if documentation else None)
    return written + tags


def _array(api: ApiVersion, parts: Sequence[bytes]) -> bytes:
    return (uvarint(len(parts) + 1) if api.flexible else INT32.pack(len(parts))) + b"".join(parts)


def _string(api: ApiVersion, value: str) -> bytes:
    if len(value) > MAX_STRING_BYTES // 4:
        value = value.encode("utf-8", "replace")[:MAX_STRING_BYTES].decode("utf-8", "ignore")
    return string(value, compact=api.flexible)


def _nullable(api: ApiVersion, value: str | None) -> bytes:
    if value is None:
        return b"\x00" if api.flexible else INT16.pack(-1)
    return _string(api, value)


def _skip_configs(version: int) -> Skip:
    layout = layout_from(LAYOUT, version)
    configs = next(field for field in layout.field("Results").fields if field.name == "Configs")
    return skip_field(configs, flexible=layout.flexible)


_SKIP_CONFIGS = [_skip_configs(version) for version in range(len(_FLAGS[ApiKey.DESCRIBE_CONFIGS]))]
