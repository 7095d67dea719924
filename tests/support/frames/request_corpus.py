"""A request of every API and version that kio can write, with values for which a broker's answer is always the same.

No request changes a cluster: changes are only validated, or name objects that do not exist.
"""

import dataclasses
import datetime
import io
import types
import typing
import uuid
from dataclasses import dataclass
from typing import Any

from kio.index import UnknownAPIKey, UnknownEntity, load_request_schema
from kio.serial import entity_writer

from protocol.api_keys import ApiKey, ApiVersion
from tests.support.frames.wire import record_batch

ABSENT = "absent-thing"
ABSENT_ID = uuid.UUID("00000000-0000-0000-0000-00000000beef")
CONFIG_TOPIC = 2  # resource types of DescribeConfigs and related APIs


_BY_NAME: dict[str, Any] = {
    "validate_only": True,
    "records": record_batch(b"corpus"),  # a broker fails without an answer on null records
    "endpoint_type": 1,
    "dry_run": True,
    "replica_id": -1,
    "acks": -1,
    "max_bytes": 1_000_000,
    "partition_max_bytes": 1_000_000,
    "isolation_level": 1,
    "session_epoch": -1,
    "share_session_epoch": -1,
    "current_leader_epoch": -1,
    "leader_epoch": 0,
    "last_fetched_epoch": -1,
    "timestamp": -1,
    "max_num_offsets": 1,
    "committed_leader_epoch": -1,
    "generation_id_or_member_epoch": -1,
    "member_epoch": -1,
    "generation_id": 5,
    "producer_id": 424_242,
    "producer_epoch": 3,
    "resource_type": CONFIG_TOPIC,
    "resource_type_filter": 1,
    "pattern_type": 3,
    "resource_pattern_type": 3,
    "pattern_type_filter": 1,
    "operation": 2,
    "permission_type": 3,
    "permission_type_filter": 1,
    "configuration_source": 0,
    "replication_factor": 1,
    "num_partitions": 1,
    "response_partition_limit": 100,
    "mechanism": "PLAIN",  # with bare tokens (v0) Sluice forwards known mechanisms only
    "entity_type": "client-id",
    "cluster_id": None,
    "configuration_keys": None,
    "subscribed_topic_regex": None,
}
_BY_API: dict[tuple[int, str], Any] = {
    (ApiKey.METADATA, "topic_id"): None,
    (ApiKey.PRODUCE, "name"): ABSENT,
    (ApiKey.PRODUCE, "topic_id"): ABSENT_ID,
    (ApiKey.CREATE_ACLS, "principal"): "User:absent",
    (ApiKey.CREATE_ACLS, "host"): "*",
    (ApiKey.DELETE_TOPICS, "name"): ABSENT,
    (ApiKey.DELETE_TOPICS, "topic_id"): None,
    (ApiKey.CREATE_TOPICS, "name"): ABSENT,
    (ApiKey.CREATE_TOPICS, "assignments"): (),
    (ApiKey.CREATE_TOPICS, "configs"): (),
    (ApiKey.CREATE_PARTITIONS, "count"): 4,
    (ApiKey.CREATE_PARTITIONS, "assignments"): None,
    (ApiKey.ALTER_CONFIGS, "name"): "retention.ms",
    (ApiKey.ALTER_CONFIGS, "value"): "1000000",
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "name"): "retention.ms",
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "value"): "1000000",
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, "config_operation"): 0,
    (ApiKey.INIT_PRODUCER_ID, "transaction_timeout"): datetime.timedelta(0),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "replicas"): None,
    (ApiKey.ALTER_CLIENT_QUOTAS, "key"): "producer_byte_rate",
    (ApiKey.ALTER_CLIENT_QUOTAS, "value"): 1e6,
    (ApiKey.UNREGISTER_BROKER, "broker_id"): 999,
    (ApiKey.ADD_RAFT_VOTER, "cluster_id"): ABSENT,
    (ApiKey.REMOVE_RAFT_VOTER, "cluster_id"): ABSENT,
    (ApiKey.UPDATE_FEATURES, "feature_updates"): (),
    (ApiKey.SHARE_FETCH, "member_id"): "AAAAAAAAAAAAAAAAAAAAAA",
    (ApiKey.SHARE_ACKNOWLEDGE, "member_id"): "AAAAAAAAAAAAAAAAAAAAAA",
    (ApiKey.STREAMS_GROUP_HEARTBEAT, "topology"): None,
    (ApiKey.STREAMS_GROUP_HEARTBEAT, "user_endpoint"): None,
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "upsertions"): (),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "mechanism"): 1,
}


@dataclass(frozen=True, slots=True)
class Existing:
    """The content of the cluster: a topic with a few records, and its id where the broker has ids."""

    topic: str
    topic_id: uuid.UUID | None


def request_body(api: ApiVersion, existing: Existing, *, at_existing_topic: bool = False) -> bytes | None:
    """Return the body of the request, or None when kio does not have this version.

    Args:
        api: API and version.
        existing: the content of the cluster.
        at_existing_topic: name the existing topic also where the corpus would name an absent one.
    """
    try:
        schema = load_request_schema(api.key, api.version)
    except (UnknownAPIKey, UnknownEntity):
        return None
    buffer = io.BytesIO()
    entity_writer(schema)(buffer, _Maker(api, existing, at_existing_topic=at_existing_topic).make(schema))
    return buffer.getvalue()


class _Maker:
    """Fills the fields of one API's message by their names and types."""

    def __init__(self, api: ApiVersion, existing: Existing, *, at_existing_topic: bool) -> None:
        self._existing = existing
        exact = {field: value for (key, field), value in _BY_API.items() if key == api.key}
        if at_existing_topic:
            exact = {field: value for field, value in exact.items() if value not in {ABSENT, ABSENT_ID}}
        self._values = _BY_NAME | exact

    def make(self, schema: type[Any]) -> Any:
        """Return an instance of a schema with every field set."""
        hints = typing.get_type_hints(schema)
        return schema(**{field.name: self._value(field, hints[field.name]) for field in dataclasses.fields(schema)})

    def _value(self, field: Any, hint: Any) -> Any:
        if field.name in self._values:
            return self._typed(self._values[field.name], hint)
        return self._of_type(field, hint)

    def _of_type(self, field: Any, hint: Any) -> Any:
        inner = _without_none(hint)
        if typing.get_origin(inner) is tuple:
            return (self._of_type(field, typing.get_args(inner)[0]),)
        if dataclasses.is_dataclass(inner):
            return self.make(typing.cast("type[Any]", inner))
        return self._plain(field, inner)

    def _plain(self, field: Any, kind: Any) -> Any:
        match field.metadata.get("kafka_type"):
            case "string":
                return kind(self._existing.topic if "topic" in field.name or field.name in {"name", "resource_name"} else ABSENT)
            case "uuid":
                return self._existing.topic_id or ABSENT_ID
            case "bytes":
                return b"corpus"
            case "timedelta_i32" | "timedelta_i64":
                return _timed(kind, 6_000)
            case "bool":
                return False
            case _:
                return kind(0)

    def _typed(self, value: Any, hint: Any) -> Any:
        """Convert a value from the tables to the type of the field."""
        kind = _without_none(hint)
        if value is None or isinstance(value, bool | tuple | uuid.UUID | bytes):
            return value
        if isinstance(value, datetime.timedelta):
            return _timed(kind, round(value.total_seconds() * 1_000))
        if typing.get_origin(kind) is tuple:
            return (typing.get_args(kind)[0](value),)
        return kind(value)


def _timed(kind: Any, milliseconds: int) -> Any:
    duration = datetime.timedelta(milliseconds=milliseconds)
    return kind.parse(duration) if hasattr(kind, "parse") else duration


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return next(one for one in typing.get_args(hint) if one is not type(None))
    return hint
