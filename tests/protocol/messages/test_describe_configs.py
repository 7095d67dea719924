"""DescribeConfigs answers of a broker: address values are removed and everything else stays, compared with two oracles."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiKey, ApiVersion
from protocol.errors import BadResponseError
from protocol.layout import layout_from
from protocol.messages.describe_configs import LAYOUT, RESOURCE_TYPE_BROKER, redact
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import BODY_AT, bodies, frame_of
from tests.support.frames.oracles import ORACLES, plain

VERSIONS = [api for api in API_VERSIONS.values() if api.key == ApiKey.DESCRIBE_CONFIGS]
BY_VERSION = pytest.mark.parametrize("api", VERSIONS, ids=lambda api: f"v{api.version}")
RESOURCE_TYPE_TOPIC = 2
SECRET = ["listeners", "advertised.listeners", "zookeeper.connect", "controller.quorum.voters", "controller.quorum.bootstrap.servers"]
PLAIN = ["log.dirs", "listener.security.protocol.map", "num.io.threads", "controller.listener.names", "zookeeper.connection.timeout.ms"]


def redacted(tree: Any, *, of_broker: bool = False, secret: bool = False) -> Any:
    """Return a decoded answer in which the values of address settings, synonyms included, are null and marked as sensitive."""
    if isinstance(tree, (list, tuple)):
        return [redacted(item, of_broker=of_broker, secret=secret) for item in tree]
    if not isinstance(tree, dict):
        return tree
    of_broker = tree.get("resource_type", RESOURCE_TYPE_BROKER if of_broker else 0) == RESOURCE_TYPE_BROKER
    secret = secret or (of_broker and tree.get("name") in SECRET)
    changed = {name: redacted(item, of_broker=of_broker, secret=secret) for name, item in tree.items()}
    if secret:
        changed |= {name: value for name, value in (("value", None), ("is_sensitive", True)) if name in tree}
    return changed


def names_and_types(body: Any, draw: st.DrawFn) -> Any:
    """Give generated configs the names and resource types that redaction depends on."""
    for result in body["Results"]:
        result["ResourceType"] = draw(st.sampled_from([RESOURCE_TYPE_BROKER, RESOURCE_TYPE_BROKER, RESOURCE_TYPE_TOPIC]))
        for config in result["Configs"]:
            for named in [config, *config.get("Synonyms", [])]:
                named["Name"] = draw(st.sampled_from(SECRET + PLAIN))
            config["ConfigType"] = config["ConfigSource"] = 1
            for synonym in config.get("Synonyms", []):
                synonym["Source"] = 1
    return body


@st.composite
def answers(draw: st.DrawFn, api: ApiVersion, *, unknown_tags: bool) -> Any:
    """Return a body with address settings and other settings."""
    return names_and_types(draw(bodies(layout_from(LAYOUT, api.version), unknown_tags=unknown_tags)), draw)


@BY_VERSION
def test_redact_then_decode_is_decode_then_redact(api: ApiVersion) -> None:
    """After redaction every oracle that supports the version finds null values with the sensitive mark, and no other change."""
    layout, body_at = layout_from(LAYOUT, api.version), BODY_AT[api.response_header_version]
    judges = [oracle for oracle in ORACLES if oracle.covers(api.key, api.version)]
    assert len(judges) == (1 if api.version == 0 else 2)

    @settings(max_examples=30, deadline=None)
    @given(body=answers(api, unknown_tags=False))
    def check(body: Any) -> None:
        frame = frame_of(api, layout_codec.encode(layout, body))
        after = redact(api, frame)
        for oracle in judges:
            before = oracle.decode(api.key, api.version, frame, body_at)
            found = oracle.decode(api.key, api.version, after, body_at)
            assert plain(found) == redacted(before), oracle.name

    check()


@BY_VERSION
def test_no_address_is_left_and_unknown_fields_are(api: ApiVersion) -> None:
    """After redaction the values of address settings are not in the bytes, and all unknown tagged fields are."""
    layout = layout_from(LAYOUT, api.version)

    @settings(max_examples=30, deadline=None)
    @given(body=answers(api, unknown_tags=True))
    def check(body: Any) -> None:
        for result in body["Results"]:
            result["ResourceType"] = RESOURCE_TYPE_BROKER
            for config in result["Configs"]:
                secret = config["Name"] in SECRET
                config["Value"] = "PLAINTEXT://broker-1.internal:9092" if secret else "plain"
                for synonym in config.get("Synonyms", []):
                    synonym["Value"] = "PLAINTEXT://broker-1.internal:9092" if secret or synonym["Name"] in SECRET else None
        after = redact(api, frame_of(api, layout_codec.encode(layout, body)))
        assert b"broker-1.internal" not in after
        decoded, end = layout_codec.decode(layout, after, BODY_AT[api.response_header_version])
        assert end == len(after)
        assert tags(decoded) == tags(body)

    check()


def tags(tree: Any) -> list[Any]:
    """Return all unknown tagged fields in order."""
    if isinstance(tree, list):
        return [tag for item in tree for tag in tags(item)]
    if not isinstance(tree, dict):
        return []
    return [
        *tree.get(layout_codec.UNKNOWN, []),
        *(tag for name, item in tree.items() if name != layout_codec.UNKNOWN for tag in tags(item)),
    ]


@BY_VERSION
def test_an_answer_without_addresses_is_the_same_object(api: ApiVersion) -> None:
    """An answer without address settings is returned as the same object."""
    config = {"Name": "retention.ms", "Value": "1", "ReadOnly": False, "IsDefault": False, "ConfigSource": 5, "IsSensitive": False}
    config |= {"Synonyms": [], "ConfigType": 5, "Documentation": None}
    result = {"ErrorCode": 0, "ErrorMessage": None, "ResourceType": RESOURCE_TYPE_TOPIC, "ResourceName": "t", "Configs": [config]}
    body = layout_codec.encode(layout_from(LAYOUT, api.version), {"ThrottleTimeMs": 0, "Results": [result]})
    frame = frame_of(api, body)
    assert redact(api, frame) is frame
    with pytest.raises(BadResponseError):
        redact(api, frame[:-2])
