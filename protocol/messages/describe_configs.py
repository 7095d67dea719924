"""DescribeConfigs responses (32): values that contain addresses are marked sensitive, and so have no value."""

from collections.abc import Callable
from functools import partial
from typing import Any

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.headers import response_header_len
from protocol.layout import (
    Field,
    Layout,
    layout_from,
    read_count,
    read_uvarint,
    reading,
    skip_compact,
    skip_fields,
    skip_string,
    skip_struct,
    skip_tags,
)
from protocol.limits import LENGTH_BYTES
from protocol.patches import Patches
from protocol.primitives import Buffer
from protocol.steps import Pace, Steps, finished

RESOURCE_TYPE_BROKER = 4
"""Kafka's `ConfigResource.Type.BROKER`."""

ADDRESS_CONFIGS = frozenset({"listeners", "advertised.listeners", "host.name", "advertised.host.name", "zookeeper.connect"})
"""Broker settings whose values contain hosts; `host.name` and `advertised.host.name` are those of brokers before 3.0."""

ADDRESS_CONFIG_PREFIX = "controller.quorum."
"""Prefix of the settings of the controller quorum, such as `controller.quorum.voters` and `controller.quorum.bootstrap.servers`."""

# Source: Kafka's DescribeConfigsResponse.json, v0-v4; not part of apis.json.
_SYNONYM = [
    {"n": "Name", "t": "string", "v": "1+"},
    {"n": "Value", "t": "string", "v": "1+", "null": "1+"},
    {"n": "Source", "t": "int8", "v": "1+"},
]
_CONFIG = [
    {"n": "Name", "t": "string", "v": "0+"},
    {"n": "Value", "t": "string", "v": "0+", "null": "0+"},
    {"n": "ReadOnly", "t": "bool", "v": "0+"},
    {"n": "ConfigSource", "t": "int8", "v": "1+"},
    {"n": "IsDefault", "t": "bool", "v": "0"},
    {"n": "IsSensitive", "t": "bool", "v": "0+"},
    {"n": "Synonyms", "t": "[]DescribeConfigsSynonym", "v": "1+", "f": _SYNONYM},
    {"n": "ConfigType", "t": "int8", "v": "3+"},
    {"n": "Documentation", "t": "string", "v": "3+", "null": "3+"},
]
_RESULT = [
    {"n": "ErrorCode", "t": "int16", "v": "0+"},
    {"n": "ErrorMessage", "t": "string", "v": "0+", "null": "0+"},
    {"n": "ResourceType", "t": "int8", "v": "0+"},
    {"n": "ResourceName", "t": "string", "v": "0+"},
    {"n": "Configs", "t": "[]DescribeConfigsResourceResult", "v": "0+", "f": _CONFIG},
]
LAYOUT: dict[str, Any] = {
    "flexible": "4+",
    "fields": [
        {"n": "ThrottleTimeMs", "t": "int32", "v": "0+"},
        {"n": "Results", "t": "[]DescribeConfigsResult", "v": "0+", "f": _RESULT},
    ],
}
"""The response in the format of the tables of `apis.json`."""


def carries_addresses(config_name: str) -> bool:
    """Return whether the value of a broker setting contains hosts or ports."""
    return config_name in ADDRESS_CONFIGS or config_name.startswith(ADDRESS_CONFIG_PREFIX)


def redact(api: ApiVersion, frame: bytes) -> bytes | memoryview:
    """Do what `redact_in_steps` does, in one call."""
    return finished(redact_in_steps(api, frame))


def redact_in_steps(api: ApiVersion, frame: bytes | memoryview) -> Steps[bytes | memoryview]:
    """Return the response with every address value of a broker set to null and marked sensitive; parsed in steps.

    Kafka itself answers so for passwords. Synonyms of such a setting lose their values too. All other bytes stay the same.

    Raises:
        BadResponseError: the frame does not match its version.
    """
    patches = Patches(frame)
    with reading():
        header_len = response_header_len(api, frame, 0)
        if header_len is None:
            raise BadResponseError("the frame ends inside its header")
        if (yield from _REDACTORS[api.version](patches, frame, LENGTH_BYTES + header_len)) > len(frame):
            raise BadResponseError("the message goes past the end of its frame")
    return (yield from patches.written())


_Visit = Callable[[Patches, Buffer, int], Steps[int]]


class _Redactor:
    """Visits one version of the response."""

    def __init__(self, layout: Layout) -> None:
        result = layout.field("Results")
        config = _named(result, "Configs")
        self._flexible = layout.flexible
        skip = partial(skip_fields, flexible=layout.flexible)
        self._to_results = skip(layout.before("Results"))
        self._to_type = skip(_until(result, "ResourceType"))
        self._to_configs = skip((_named(result, "ResourceName"),))
        self._value_to_sensitive = skip(_between(config, "Value", "IsSensitive"))
        self._skip_config = skip_struct(config.fields, flexible=layout.flexible)
        synonyms = [field for field in config.fields if field.name == "Synonyms"]
        self._after_synonym_value = skip_struct(_after(synonyms[0], "Value"), flexible=layout.flexible) if synonyms else None
        self._config_end = skip_struct(_after(config, "Synonyms" if synonyms else "IsSensitive"), flexible=layout.flexible)

    def __call__(self, patches: Patches, frame: Buffer, at: int) -> Steps[int]:
        pace = Pace()
        count, at = read_count(frame, self._to_results(frame, at), compact=self._flexible)
        for _ in range(count):
            at = yield from self._result(patches, frame, at, pace)
            if pace.due():
                yield from patches.flush()
                yield
        return at

    def _result(self, patches: Patches, frame: Buffer, at: int, pace: Pace) -> Steps[int]:
        at = self._to_type(frame, at)
        is_broker = frame[at] == RESOURCE_TYPE_BROKER
        count, at = read_count(frame, self._to_configs(frame, at + 1), compact=self._flexible)
        for _ in range(count):
            at = (yield from self._config(patches, frame, at, pace)) if is_broker else self._skip_config(frame, at)
            if pace.due():
                yield from patches.flush()
                yield
        return skip_tags(frame, at) if self._flexible else at

    def _config(self, patches: Patches, frame: Buffer, at: int, pace: Pace) -> Steps[int]:
        name, value_at = self._name(frame, at)
        secret = carries_addresses(name)
        value_end = self._value(patches, frame, value_at, secret=secret)
        sensitive_at = self._value_to_sensitive(frame, value_end)
        if secret and frame[sensitive_at] != 1:
            patches.add(sensitive_at, sensitive_at + 1, b"\x01")
        at = sensitive_at + 1
        if self._after_synonym_value is not None:
            count, at = read_count(frame, at, compact=self._flexible)
            for _ in range(count):
                synonym, value_at = self._name(frame, at)
                value_end = self._value(patches, frame, value_at, secret=secret or carries_addresses(synonym))
                at = self._after_synonym_value(frame, value_end)
                if pace.due():
                    yield from patches.flush()
                    yield
        return self._config_end(frame, at)

    def _name(self, frame: Buffer, at: int) -> tuple[str, int]:
        end = skip_compact(frame, at) if self._flexible else skip_string(frame, at)
        start = read_uvarint(frame, at)[1] if self._flexible else at + 2
        return str(frame[start:end], "utf-8", "replace"), end

    def _value(self, patches: Patches, frame: Buffer, at: int, *, secret: bool) -> int:
        """Skip a value; set it to null if it is `secret`."""
        end = skip_compact(frame, at) if self._flexible else skip_string(frame, at)
        null = b"\x00" if self._flexible else b"\xff\xff"
        if secret and frame[at:end] != null:
            patches.add(at, end, null)
        return end


def _named(struct: Field, name: str) -> Field:
    return next(field for field in struct.fields if field.name == name)


def _until(struct: Field, name: str) -> tuple[Field, ...]:
    return struct.fields[: struct.fields.index(_named(struct, name))]


def _after(struct: Field, name: str) -> tuple[Field, ...]:
    return struct.fields[struct.fields.index(_named(struct, name)) + 1 :]


def _between(struct: Field, first: str, last: str) -> tuple[Field, ...]:
    return tuple(field for field in _after(struct, first) if field in _until(struct, last))


_REDACTORS: dict[int, _Visit] = {
    api.version: _Redactor(layout_from(LAYOUT, api.version)) for api in API_VERSIONS.values() if api.key == ApiKey.DESCRIBE_CONFIGS
}
