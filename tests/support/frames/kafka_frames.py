"""Complete frames by name: requests of clients and answers of brokers, of any size.

Messages are made from the tables of `apis.json`; a field that a test does not name is empty.
"""

import functools
import struct
from collections.abc import Sequence
from typing import Any

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion, unknown_api_version
from protocol.layout import Field, Layout, layout_of
from tests.support.frames import layout_codec
from tests.support.frames.layout_codec import uvarint

_layout_of = functools.cache(layout_of)
"""A simulation writes thousands of frames with a few layouts, and each layout is a walk through a table."""

CLIENT_ID = "etl"
_EMPTY: dict[str, Any] = {"bool": False, "float64": 0.0, "string": "", "bytes": b"", "records": b"", "uuid": bytes(16)}


def api_of(key: int, version: int) -> ApiVersion:
    """Return the table's entry of an API and version, also for a version above the highest known one."""
    return API_VERSIONS.get(key << 16 | version) or unknown_api_version(key, version)


def request(api: ApiVersion, body: bytes, correlation_id: int, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a complete request with the header of its version."""
    head = struct.pack(">hhi", api.key, api.version, correlation_id)
    if api.request_header_version >= 1:
        head += b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id.encode())) + client_id.encode()
    if api.request_header_version >= 2:
        head += b"\0"
    return _framed(head + body)


def response(api: ApiVersion, body: bytes, correlation_id: int, tags: dict[int, bytes] | None = None) -> bytes:
    """Return a complete answer with the header of its version, with tagged fields in it if given."""
    head = struct.pack(">i", correlation_id)
    if api.response_header_version >= 1:
        head += uvarint(len(tags or {}))
        for tag, value in (tags or {}).items():
            head += uvarint(tag) + uvarint(len(value)) + value
    return _framed(head + body)


def produce(correlation_id: int, *, size: int = 100, acks: int = 1, version: int = 9, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a Produce request of one batch; `size` is the number of bytes of its records."""
    partition = {"Index": 0, "Records": bytes(size)}
    layout = _layout_of(ApiKey.PRODUCE, "request", version)
    topics = [_filled(layout.field("TopicData"), {"Name": "t", "PartitionData": [partition]})]
    body = message(layout, Acks=acks, TimeoutMs=30_000, TopicData=topics)
    return request(api_of(ApiKey.PRODUCE, version), body, correlation_id, client_id)


def produced(correlation_id: int, *, throttle_ms: int = 0, version: int = 9, endpoints: list[dict[str, Any]] | None = None) -> bytes:
    """Return the answer to a Produce request of one batch."""
    layout = _layout_of(ApiKey.PRODUCE, "response", version)
    values: dict[str, Any] = {"Responses": [_filled(layout.field("Responses"), {"Name": "t", "PartitionResponses": [{"Index": 0}]})]}
    if endpoints is not None:
        values["NodeEndpoints"] = endpoints
        values["Responses"][0]["PartitionResponses"][0]["ErrorCode"] = 6
    return response(api_of(ApiKey.PRODUCE, version), message(layout, ThrottleTimeMs=throttle_ms, **values), correlation_id)


def fetch(
    correlation_id: int,
    *,
    max_bytes: int = 50_000_000,
    min_bytes: int = 1,
    max_wait_ms: int = 500,
    replica_id: int = -1,
    version: int = 12,
    client_id: str | None = CLIENT_ID,
) -> bytes:
    """Return a Fetch request without partitions."""
    layout = _layout_of(ApiKey.FETCH, "request", version)
    values: dict[str, Any] = {"MaxWaitMs": max_wait_ms, "MinBytes": min_bytes, "MaxBytes": max_bytes}
    if version < 15:
        values["ReplicaId"] = replica_id
    elif replica_id >= 0:
        values["ReplicaState"] = {"ReplicaId": replica_id, "ReplicaEpoch": 1, layout_codec.UNKNOWN: []}
    return request(api_of(ApiKey.FETCH, version), message(layout, **values), correlation_id, client_id)


def fetched(
    correlation_id: int,
    *,
    size: int = 100,
    throttle_ms: int = 0,
    version: int = 12,
    endpoints: list[dict[str, Any]] | None = None,
    tags: dict[int, bytes] | None = None,
    records: Sequence[bytes] = (),
) -> bytes:
    """Return the answer to a Fetch request: one partition with `size` bytes of records, or one for each of `records`."""
    layout = _layout_of(ApiKey.FETCH, "response", version)
    topic = _filled(layout.field("Responses"), {"Topic": "t", "Partitions": [{"Records": one} for one in records or [bytes(size)]]})
    values: dict[str, Any] = {"ThrottleTimeMs": throttle_ms, "Responses": [topic]}
    if endpoints is not None:
        values["NodeEndpoints"] = endpoints
    return response(api_of(ApiKey.FETCH, version), message(layout, **values), correlation_id, tags)


def share_fetch(correlation_id: int, *, max_bytes: int = 50_000_000, min_bytes: int = 1, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a ShareFetch v1 request: group, member, epoch, wait, minimum, maximum, records, batch, no topics."""
    body = b"\x02g\x02m" + struct.pack(">iiiiii", 1, 500, min_bytes, max_bytes, 500, 500) + b"\x01\x01\x00"
    return request(api_of(ApiKey.SHARE_FETCH, 1), body, correlation_id, client_id)


def share_fetched(correlation_id: int, *, size: int = 100, throttle_ms: int = 0) -> bytes:
    """Return the answer to a ShareFetch v1 request with `size` bytes of records."""
    layout = _layout_of(ApiKey.SHARE_FETCH, "response", 1)
    topic = _filled(layout.field("Responses"), {"Partitions": [{"Records": bytes(size)}]})
    return response(api_of(ApiKey.SHARE_FETCH, 1), message(layout, ThrottleTimeMs=throttle_ms, Responses=[topic]), correlation_id)


def plain(correlation_id: int, key: int = ApiKey.HEARTBEAT, version: int = 0, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a request that no byte quota counts; a proxy does not read its body."""
    return request(api_of(key, version), b"\x00\x01g\x00\x00\x00\x00\x00\x01m", correlation_id, client_id)


def answered(correlation_id: int, key: int = ApiKey.HEARTBEAT, version: int = 0) -> bytes:
    """Return an answer that is forwarded unchanged."""
    return response(api_of(key, version), b"\x00\x00", correlation_id)


def api_versions(correlation_id: int, version: int = 0, client_id: str | None = CLIENT_ID) -> bytes:
    """Return an ApiVersions request; from version 3 on it names its software."""
    body = b"" if version < 3 else b"\x05test\x041.0\x00"
    return request(api_of(ApiKey.API_VERSIONS, version), body, correlation_id, client_id)


def api_versions_answer(correlation_id: int, ranges: list[tuple[int, int, int]], version: int = 0) -> bytes:
    """Return an ApiVersions answer with these (key, lowest, highest)."""
    layout = _layout_of(ApiKey.API_VERSIONS, "response", version)
    keys = [_filled(layout.field("ApiKeys"), {"ApiKey": key, "MinVersion": low, "MaxVersion": high}) for key, low, high in ranges]
    return response(api_of(ApiKey.API_VERSIONS, version), message(layout, ApiKeys=keys), correlation_id)


def metadata(correlation_id: int, version: int = 9, client_id: str | None = CLIENT_ID) -> bytes:
    """Return a Metadata request for no topic."""
    body = b"\x01\x00\x00\x00\x00" if version >= 9 else b"\x00\x00\x00\x00" + (b"\x00" if version >= 4 else b"")
    return request(api_of(ApiKey.METADATA, version), body, correlation_id, client_id)


def metadata_answer(
    correlation_id: int, brokers: dict[int, tuple[str, int]], version: int = 9, topics: Sequence[dict[str, Any]] = ()
) -> bytes:
    """Return a Metadata answer that names these brokers and topics."""
    layout = _layout_of(ApiKey.METADATA, "response", version)
    entries = [
        _filled(layout.field("Brokers"), {"NodeId": node_id, "Host": host, "Port": port, "Rack": None})
        for node_id, (host, port) in brokers.items()
    ]
    named = [_filled(layout.field("Topics"), topic) for topic in topics]
    values: dict[str, Any] = {"Brokers": entries, "ControllerId": min(brokers, default=-1), "Topics": named}
    return response(api_of(ApiKey.METADATA, version), message(layout, **values), correlation_id)


def endpoint(node_id: int, host: str, port: int) -> dict[str, Any]:
    """Return one entry of NodeEndpoints."""
    return {"NodeId": node_id, "Host": host, "Port": port, "Rack": None, layout_codec.UNKNOWN: []}


def message(layout: Layout, **values: Any) -> bytes:
    """Write a message; fields that are not given are empty, and those that the version lacks are left out."""
    top = Field("", "", is_array=False, fields=layout.fields, tag=None)
    return layout_codec.encode(layout, _filled(top, values))


def split(data: bytes) -> list[bytes]:
    """Split a stream into its complete frames.

    Raises:
        ValueError: bytes are left over.
    """
    frames = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big") if len(data) >= 4 else len(data) + 1
        if end > len(data):
            raise ValueError(f"{len(data)} bytes of an unfinished frame")
        frames.append(data[:end])
        data = data[end:]
    return frames


def request_ids(data: bytes) -> list[int]:
    """Return the correlation ids of complete requests."""
    return [int.from_bytes(frame[8:12], "big") for frame in split(data)]


def answer_ids(data: bytes) -> list[int]:
    """Return the correlation ids of complete answers."""
    return [int.from_bytes(frame[4:8], "big") for frame in split(data)]


def throttle_ms(frame: bytes, key: int, version: int) -> int:
    """Return the throttle time of a complete answer, by the plain model of its message."""
    api = api_of(key, version)
    head_bytes = 8 if api.response_header_version == 0 else 9
    body, _ = layout_codec.decode(_layout_of(key, "response", version), frame, head_bytes)
    found: int = body["ThrottleTimeMs"]
    return found


def _filled(field: Field, values: dict[str, Any]) -> dict[str, Any]:
    filled: dict[str, Any] = {layout_codec.UNKNOWN: []}
    for inner in field.fields:
        if inner.name in values:
            filled[inner.name] = _with_defaults(inner, values[inner.name])
        elif inner.tag is None:
            filled[inner.name] = _default(inner)
    return filled


def _with_defaults(field: Field, value: Any) -> Any:
    if not field.fields or value is None:
        return value
    return [_filled(field, item) for item in value] if field.is_array else _filled(field, value)


def _default(field: Field) -> Any:
    if field.is_array:
        return None if field.nullable and field.name == "AbortedTransactions" else []
    if field.fields:
        return _filled(field, {})
    return None if field.nullable else _EMPTY.get(field.type, 0)


def _framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
