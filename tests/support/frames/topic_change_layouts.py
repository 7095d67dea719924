"""Field tables of CreateTopics, DeleteTopics, CreatePartitions and the Metadata request, in the form of `apis.json`, which lacks them.

Source: the message definitions in the client jars of Kafka 3.9.1 and 4.3.1, which have the same versions.
"""

from typing import Any

from protocol.api_keys import ApiKey, ApiVersion
from protocol.layout import Layout, layout_from

_CREATE_REQUEST: list[dict[str, Any]] = [
    {
        "n": "Topics",
        "t": "[]CreatableTopic",
        "v": "0+",
        "f": [
            {"n": "Name", "t": "string", "v": "0+"},
            {"n": "NumPartitions", "t": "int32", "v": "0+"},
            {"n": "ReplicationFactor", "t": "int16", "v": "0+"},
            {
                "n": "Assignments",
                "t": "[]CreatableReplicaAssignment",
                "v": "0+",
                "f": [{"n": "PartitionIndex", "t": "int32", "v": "0+"}, {"n": "BrokerIds", "t": "[]int32", "v": "0+"}],
            },
            {
                "n": "Configs",
                "t": "[]CreatableTopicConfig",
                "v": "0+",
                "f": [{"n": "Name", "t": "string", "v": "0+"}, {"n": "Value", "t": "string", "v": "0+", "null": "0+"}],
            },
        ],
    },
    {"n": "TimeoutMs", "t": "int32", "v": "0+"},
    {"n": "ValidateOnly", "t": "bool", "v": "1+"},
]
_CREATE_RESPONSE: list[dict[str, Any]] = [
    {"n": "ThrottleTimeMs", "t": "int32", "v": "2+"},
    {
        "n": "Topics",
        "t": "[]CreatableTopicResult",
        "v": "0+",
        "f": [
            {"n": "Name", "t": "string", "v": "0+"},
            {"n": "TopicId", "t": "uuid", "v": "7+"},
            {"n": "ErrorCode", "t": "int16", "v": "0+"},
            {"n": "ErrorMessage", "t": "string", "v": "1+", "null": "0+"},
            {"n": "TopicConfigErrorCode", "t": "int16", "v": "5+", "tag": 0, "tagv": "5+"},
            {"n": "NumPartitions", "t": "int32", "v": "5+"},
            {"n": "ReplicationFactor", "t": "int16", "v": "5+"},
            {
                "n": "Configs",
                "t": "[]CreatableTopicConfigs",
                "v": "5+",
                "null": "5+",
                "f": [
                    {"n": "Name", "t": "string", "v": "5+"},
                    {"n": "Value", "t": "string", "v": "5+", "null": "5+"},
                    {"n": "ReadOnly", "t": "bool", "v": "5+"},
                    {"n": "ConfigSource", "t": "int8", "v": "5+"},
                    {"n": "IsSensitive", "t": "bool", "v": "5+"},
                ],
            },
        ],
    },
]
_DELETE_REQUEST: list[dict[str, Any]] = [
    {
        "n": "Topics",
        "t": "[]DeleteTopicState",
        "v": "6+",
        "f": [{"n": "Name", "t": "string", "v": "6+", "null": "6+"}, {"n": "TopicId", "t": "uuid", "v": "6+"}],
    },
    {"n": "TopicNames", "t": "[]string", "v": "0-5"},
    {"n": "TimeoutMs", "t": "int32", "v": "0+"},
]
_DELETE_RESPONSE: list[dict[str, Any]] = [
    {"n": "ThrottleTimeMs", "t": "int32", "v": "1+"},
    {
        "n": "Responses",
        "t": "[]DeletableTopicResult",
        "v": "0+",
        "f": [
            {"n": "Name", "t": "string", "v": "0+", "null": "6+"},
            {"n": "TopicId", "t": "uuid", "v": "6+"},
            {"n": "ErrorCode", "t": "int16", "v": "0+"},
            {"n": "ErrorMessage", "t": "string", "v": "5+", "null": "5+"},
        ],
    },
]
_GROW_REQUEST: list[dict[str, Any]] = [
    {
        "n": "Topics",
        "t": "[]CreatePartitionsTopic",
        "v": "0+",
        "f": [
            {"n": "Name", "t": "string", "v": "0+"},
            {"n": "Count", "t": "int32", "v": "0+"},
            {
                "n": "Assignments",
                "t": "[]CreatePartitionsAssignment",
                "v": "0+",
                "null": "0+",
                "f": [{"n": "BrokerIds", "t": "[]int32", "v": "0+"}],
            },
        ],
    },
    {"n": "TimeoutMs", "t": "int32", "v": "0+"},
    {"n": "ValidateOnly", "t": "bool", "v": "0+"},
]
_GROW_RESPONSE: list[dict[str, Any]] = [
    {"n": "ThrottleTimeMs", "t": "int32", "v": "0+"},
    {
        "n": "Results",
        "t": "[]CreatePartitionsTopicResult",
        "v": "0+",
        "f": [
            {"n": "Name", "t": "string", "v": "0+"},
            {"n": "ErrorCode", "t": "int16", "v": "0+"},
            {"n": "ErrorMessage", "t": "string", "v": "0+", "null": "0+"},
        ],
    },
]
_METADATA_REQUEST: list[dict[str, Any]] = [
    {
        "n": "Topics",
        "t": "[]MetadataRequestTopic",
        "v": "0+",
        "null": "1+",
        "f": [{"n": "TopicId", "t": "uuid", "v": "10+"}, {"n": "Name", "t": "string", "v": "0+", "null": "10+"}],
    },
    {"n": "AllowAutoTopicCreation", "t": "bool", "v": "4+"},
    {"n": "IncludeClusterAuthorizedOperations", "t": "bool", "v": "8-10"},
    {"n": "IncludeTopicAuthorizedOperations", "t": "bool", "v": "8+"},
]
_TABLES = {
    (ApiKey.METADATA, "request"): _METADATA_REQUEST,
    (ApiKey.CREATE_TOPICS, "request"): _CREATE_REQUEST,
    (ApiKey.CREATE_TOPICS, "response"): _CREATE_RESPONSE,
    (ApiKey.DELETE_TOPICS, "request"): _DELETE_REQUEST,
    (ApiKey.DELETE_TOPICS, "response"): _DELETE_RESPONSE,
    (ApiKey.CREATE_PARTITIONS, "request"): _GROW_REQUEST,
    (ApiKey.CREATE_PARTITIONS, "response"): _GROW_RESPONSE,
}
_FLEXIBLE = {ApiKey.METADATA: "9+", ApiKey.CREATE_TOPICS: "5+", ApiKey.DELETE_TOPICS: "4+", ApiKey.CREATE_PARTITIONS: "2+"}


def change_layout(api: ApiVersion, kind: str) -> Layout:
    """Return the layout of the "request" or "response" of one version."""
    key = ApiKey(api.key)
    return layout_from({"fields": _TABLES[key, kind], "flexible": _FLEXIBLE[key]}, api.version)


def topics_field(api: ApiVersion, kind: str) -> str:
    """Return the name of the array of topics in one version."""
    return next(field.name for field in change_layout(api, kind).fields if field.is_array)
