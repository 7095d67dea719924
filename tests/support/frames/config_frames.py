"""DescribeConfigs and IncrementalAlterConfigs: requests and answers from Kafka's message definitions."""

from typing import Any

from protocol.api_keys import ApiVersion
from protocol.layout import Layout, layout_from
from protocol.messages.describe_configs import LAYOUT as DESCRIBED
from protocol.request_head import read_request_head
from tests.support.frames import layout_codec
from tests.support.frames.kafka_frames import request

_RESOURCE = [{"n": "ResourceType", "t": "int8", "v": "0+"}, {"n": "ResourceName", "t": "string", "v": "0+"}]
DESCRIBE = {
    "flexible": "4+",
    "fields": [
        {
            "n": "Resources",
            "t": "[]R",
            "v": "0+",
            "f": [*_RESOURCE, {"n": "ConfigurationKeys", "t": "[]string", "v": "0+", "null": "0+"}],
        },
        {"n": "IncludeSynonyms", "t": "bool", "v": "1+"},
        {"n": "IncludeDocumentation", "t": "bool", "v": "3+"},
    ],
}
_OP = [
    {"n": "Name", "t": "string", "v": "0+"},
    {"n": "ConfigOperation", "t": "int8", "v": "0+"},
    {"n": "Value", "t": "string", "v": "0+", "null": "0+"},
]
ALTER = {
    "flexible": "1+",
    "fields": [
        {"n": "Resources", "t": "[]R", "v": "0+", "f": [*_RESOURCE, {"n": "Configs", "t": "[]C", "v": "0+", "f": _OP}]},
        {"n": "ValidateOnly", "t": "bool", "v": "0+"},
    ],
}
_RESULT = [
    {"n": "ErrorCode", "t": "int16", "v": "0+"},
    {"n": "ErrorMessage", "t": "string", "v": "0+", "null": "0+"},
    *_RESOURCE,
]
ALTERED = {
    "flexible": "1+",
    "fields": [{"n": "ThrottleTimeMs", "t": "int32", "v": "0+"}, {"n": "Responses", "t": "[]R", "v": "0+", "f": _RESULT}],
}


def asked_by(api: ApiVersion) -> Layout:
    """Return the request of this version."""
    return layout_from(DESCRIBE if api.key == 32 else ALTER, api.version)


def answered_by(api: ApiVersion) -> Layout:
    """Return the answer of this version."""
    return layout_from(DESCRIBED if api.key == 32 else ALTERED, api.version)


def results_of(api: ApiVersion, frame: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return an answer's fields, and its results."""
    body, end = layout_codec.decode(answered_by(api), frame, 8 + api.response_header_version)
    assert end == len(frame)
    return body, body["Results" if api.key == 32 else "Responses"]


def body_at(frame: bytes) -> int:
    """Return the offset of a request's body."""
    head = read_request_head(frame, 0, len(frame) - 4)
    assert head is not None
    return head.body_at


def a_request(api: ApiVersion, body: dict[str, Any]) -> bytes:
    """Return a complete request."""
    return request(api, layout_codec.encode(asked_by(api), body), 7, "admin")
