"""The table of all APIs: header versions, treatment, position of the throttle time. Built from `apis.json` at import."""

import json
from collections.abc import Container, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any


class ApiKey(IntEnum):
    """Kafka's API keys by the names of `org.apache.kafka.common.protocol.ApiKeys`."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Treatment(Enum):
    """What Sluice does with a request."""

    PASS = "pass"  # noqa: S105 - no password: forwarded as it came
    OBSERVE = "observe"  # forwarded; the bytes of its request or response count against a byte quota
    ANSWER = "answer"  # the response is Sluice's own, made from the broker's
    REFUSE = "refuse"  # inter-broker or controller plane: never advertised, closes the connection


class ThrottlePosition(Enum):
    """Position of `throttle_time_ms` in a response."""

    NONE = "none"
    FIRST = "first"  # right after the response header
    WALK = "walk"  # behind other fields; see `messages.throttle_time`


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """One version of one API. There is one object per pair, so identity is equality.

    Attributes:
        index: `key << 16 | version`, the int32 at offset 4 of a request frame.
        splice: the response carries broker addresses that `messages.addresses.splice` replaces.
        redact: the response carries addresses as text, see `messages.describe_configs.redact`.
    """

    key: int
    version: int
    name: str
    request_header_version: int
    response_header_version: int
    flexible: bool
    treatment: Treatment
    throttle: ThrottlePosition
    splice: bool
    redact: bool

    @property
    def index(self) -> int:
        """The int32 that names this API and version in a frame."""
        return self.key << 16 | self.version


TABLE: dict[str, Any] = json.loads(Path(__file__).with_name("apis.json").read_text(encoding="utf-8"))
"""The content of `apis.json`: `apis` and `layouts`."""

_OBSERVED = frozenset({ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.SHARE_FETCH})
# Available on broker listeners, but used by brokers only: the share-group persister.
_SHARE_STATE = frozenset(range(ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE_SUMMARY + 1))
# Version 2 returns the addresses of controllers, which must not reach a client.
_VERSION_CAPS = {int(ApiKey.DESCRIBE_QUORUM): 1}


def _is_hidden(api: dict[str, Any]) -> bool:
    listeners = [listener for of_release in api["listeners"].values() for listener in of_release or ()]
    return "broker" not in listeners or api["key"] in _SHARE_STATE


def _treatment(api: dict[str, Any], version: int) -> Treatment:
    key: int = api["key"]
    if _is_hidden(api) or version > _VERSION_CAPS.get(key, version):
        return Treatment.REFUSE
    if key == ApiKey.API_VERSIONS:
        return Treatment.ANSWER
    return Treatment.OBSERVE if key in _OBSERVED else Treatment.PASS


def _throttle_position(api: dict[str, Any], version: int) -> ThrottlePosition:
    throttle = api["throttle"]
    if throttle is None or version < throttle["since"]:
        return ThrottlePosition.NONE
    return ThrottlePosition.FIRST if throttle["position"] == "first" else ThrottlePosition.WALK


def _header_version(ranges: list[list[int]], version: int) -> int:
    return next(header for first, last, header in ranges if first <= version <= last)


def _has_addresses(api: dict[str, Any], version: int) -> bool:
    return any(
        address["in"] == "response" and address["treatment"] == "rewrite" and address["versions"][0] <= version <= address["versions"][1]
        for address in api["addresses"]
    )


def _api_version(api: dict[str, Any], version: int) -> ApiVersion:
    return ApiVersion(
        key=api["key"],
        version=version,
        name=api["name"],
        request_header_version=_header_version(api["request_header"], version),
        response_header_version=_header_version(api["response_header"], version),
        flexible=api["flexible"] is not None and version >= api["flexible"],
        treatment=_treatment(api, version),
        throttle=_throttle_position(api, version),
        splice=_has_addresses(api, version),
        redact=api["key"] == ApiKey.DESCRIBE_CONFIGS,
    )


def _all_versions() -> Iterator[ApiVersion]:
    for api in TABLE["apis"]:
        ranges = [of_release for of_release in api["versions"].values() if of_release]
        for version in range(min(first for first, _ in ranges), max(last for _, last in ranges) + 1):
            yield _api_version(api, version)


API_VERSIONS: dict[int, ApiVersion] = {api.index: api for api in _all_versions()}
"""All pairs in the table, refused ones too, by the int32 at offset 4 of a request frame."""

KNOWN_KEYS: frozenset[int] = frozenset(api.key for api in API_VERSIONS.values())

HIDDEN_KEYS: frozenset[int] = frozenset(api["key"] for api in TABLE["apis"] if _is_hidden(api))
"""Keys of the inter-broker and controller plane: not advertised, and refused in requests."""

MAX_VERSIONS: dict[int, int] = {}
"""Highest version of each key that clients may use; ApiVersions responses are capped to it."""
for _api in API_VERSIONS.values():
    if _api.treatment is not Treatment.REFUSE:
        MAX_VERSIONS[_api.key] = max(_api.version, MAX_VERSIONS.get(_api.key, 0))


def client_api_keys() -> frozenset[int]:
    """Return the keys that clients may use."""
    return KNOWN_KEYS - HIDDEN_KEYS


class AllKeysExcept:
    """The set of all API keys except the given ones."""

    __slots__ = ("_kept",)

    def __init__(self, kept: frozenset[int]) -> None:
        self._kept = kept

    def __contains__(self, key: object) -> bool:
        return key not in self._kept


def keys_to_drop(*, unknown_apis_pass: bool) -> Container[int]:
    """Return the keys to remove from a broker's ApiVersions response: the hidden ones and, unless they pass, the unknown ones."""
    return HIDDEN_KEYS if unknown_apis_pass else AllKeysExcept(client_api_keys())


def unknown_api_version(key: int, version: int) -> ApiVersion:
    """Return an ApiVersion for a pair that is not in the table, for requests that are answered or forwarded nevertheless.

    A newer ApiVersions request has a flexible header (KIP-511). The format of a vendor's API is unknown: only the part common to all
    request headers is read, and only the correlation id of its response.
    """
    from_the_future = key == ApiKey.API_VERSIONS
    return ApiVersion(
        key=key,
        version=version,
        name="ApiVersions" if from_the_future else f"Unknown{key}",
        request_header_version=2 if from_the_future else 1,
        response_header_version=0,
        flexible=from_the_future,
        treatment=Treatment.ANSWER if from_the_future else Treatment.PASS,
        throttle=ThrottlePosition.NONE,
        splice=False,
        redact=False,
    )
