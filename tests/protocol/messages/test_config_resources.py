"""Configuration requests reduced to some of their resources, and results inserted into answers."""

import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiVersion
from protocol.errors import BadRequestError, BadResponseError
from protocol.messages.config_resources import (
    CLIENT,
    QUOTA_TYPES,
    USER,
    ConfigResource,
    ConfigValue,
    answer_of,
    cut_config_request,
    described_result,
    joined_answer,
    names_quotas,
    plain_result,
    read_config_request,
)
from protocol.primitives import Buffer
from protocol.steps import finished
from tests.support.frames import layout_codec
from tests.support.frames.config_frames import a_request, answered_by, asked_by, body_at, results_of
from tests.support.frames.message_strategies import bodies, frame_of
from tests.support.frames.oracles import ORACLES

APIS = [API_VERSIONS[key << 16 | version] for key, last in ((32, 4), (44, 1)) for version in range(last + 1)]
QUICK = settings(max_examples=20, deadline=None)
BY_NAME = pytest.mark.parametrize("api", APIS, ids=lambda api: f"{api.name}-v{api.version}")


def named(api: ApiVersion, frame: Buffer, at: int) -> bool:
    """Walk a whole request at once."""
    return finished(names_quotas(api, frame, at))


@BY_NAME
def test_requests_are_read_and_cut(api: ApiVersion) -> None:
    """Every resource is read, and a reduced request decodes to the same one without the other resources and with Sluice's correlation
    id.
    """

    @QUICK
    @given(bodies(asked_by(api)), st.data())
    def check(body: dict[str, Any], data: st.DataObject) -> None:
        frame = a_request(api, body)
        found = read_config_request(api, frame, body_at(frame))
        assert [(one.type, one.name) for one in found.resources] == [
            (resource["ResourceType"] & 0xFF, resource["ResourceName"]) for resource in body["Resources"]
        ]
        assert named(api, frame, body_at(frame)) == any(one.type in QUOTA_TYPES for one in found.resources)
        for one, resource in zip(found.resources, body["Resources"], strict=True):
            if api.key == 32:
                keys = resource["ConfigurationKeys"]
                assert one.keys == (None if keys is None else tuple(keys))
            else:
                assert [(op.name, op.operation, op.value) for op in one.ops] == [
                    (op["Name"], op["ConfigOperation"] & 0xFF, op["Value"]) for op in resource["Configs"]
                ]
        if not found.resources:
            return
        keep = data.draw(st.sets(st.integers(0, len(found.resources) - 1)))
        cut = cut_config_request(api, frame, found, keep, 99)
        kept = [resource for place, resource in enumerate(body["Resources"]) if place in keep]
        assert cut == a_request(api, body | {"Resources": kept})[:8] + (99).to_bytes(4) + a_request(api, body | {"Resources": kept})[12:]

    check()


@BY_NAME
def test_results_are_joined_in_the_order_of_the_request(api: ApiVersion) -> None:
    """Broker results in any order and Sluice's own ones are joined in the order in which the request names the resources."""

    @QUICK
    @given(bodies(answered_by(api)), st.data())
    def check(body: dict[str, Any], data: st.DataObject) -> None:
        field = "Results" if api.key == 32 else "Responses"
        theirs = [one | {"ResourceType": 2, "ResourceName": f"topic-{at}"} for at, one in enumerate(body[field])]
        frame = frame_of(api, layout_codec.encode(answered_by(api), body | {field: data.draw(st.permutations(theirs))}))
        named = [(2, f"topic-{at}") for at in range(len(theirs))] + [(USER, "alice"), (CLIENT, "c")]
        order = data.draw(st.permutations(named))
        resources = tuple(ConfigResource(kind, name, None, (), 0, 0) for kind, name in order)
        asked = read_config_request(api, a_request(api, _empty(api)), body_at(a_request(api, _empty(api))))._replace(resources=resources)
        ours = {place: plain_result(api, 31, "no", one) for place, one in enumerate(resources) if one.type in QUOTA_TYPES}
        joined, results = results_of(api, joined_answer(api, frame, 7, asked, ours))
        assert [(one["ResourceType"], one["ResourceName"]) for one in results] == list(order)
        assert {one["ErrorMessage"] for one in results if one["ResourceType"] in QUOTA_TYPES} == {"no"}
        assert sorted(map(repr, (one for one in results if one["ResourceType"] == 2))) == sorted(map(repr, results_of(api, frame)[1]))
        assert joined["ThrottleTimeMs"] == body["ThrottleTimeMs"]

    check()


def _empty(api: ApiVersion) -> dict[str, Any]:
    flags = {"IncludeSynonyms": True, "IncludeDocumentation": True} if api.key == 32 else {"ValidateOnly": False}
    return {"Resources": [], **flags}


@BY_NAME
def test_an_answer_of_ours_reads_everywhere(api: ApiVersion) -> None:
    """kio and kafka-python read an answer of Sluice with its source, and with synonym and documentation where the request asked for
    them.
    """
    frame = a_request(api, _empty(api))
    asked = read_config_request(api, frame, body_at(frame))
    resource = ConfigResource(USER, "alice", None, (), 0, 0)
    config = ConfigValue("producer_byte_rate", "1024", 121, 5, "Bytes.")
    written = [described_result(api, asked, resource, [config]) if api.key == 32 else plain_result(api, 0, None, resource)]
    answer = answer_of(api, 7, [*written, plain_result(api, 42, "no such thing", resource)])
    _, (good, bad) = results_of(api, answer)
    assert (good["ErrorCode"], good["ResourceType"], good["ResourceName"]) == (0, USER, "alice")
    assert (bad["ErrorCode"], bad["ErrorMessage"]) == (42, "no such thing")
    if api.key == 32:
        (found,) = good["Configs"]
        assert (found["Name"], found["Value"], found.get("ConfigSource", 121)) == ("producer_byte_rate", "1024", 121)
        assert [one["Name"] for one in found.get("Synonyms", [])] == ["producer_byte_rate"] * (api.version > 0)
        assert found.get("Documentation", "Bytes.") == "Bytes."
    for oracle in ORACLES:
        if oracle.covers(api.key, api.version):
            oracle.decode(api.key, api.version, answer, 8 + api.response_header_version)


@BY_NAME
def test_any_bytes_are_read_or_refused(api: ApiVersion) -> None:
    """Truncated or changed requests and answers are read or refused, nothing else."""

    @QUICK
    @given(bodies(asked_by(api)), bodies(answered_by(api)), st.data())
    def check(asked: dict[str, Any], answered: dict[str, Any], data: st.DataObject) -> None:
        frame = bytearray(a_request(api, asked))
        at = body_at(bytes(frame))
        _damage(frame, at, data)
        for read in (named, read_config_request):
            with contextlib.suppress(BadRequestError):
                read(api, bytes(frame), at)
        answer = bytearray(frame_of(api, layout_codec.encode(answered_by(api), answered)))
        _damage(answer, 8, data)
        with contextlib.suppress(BadResponseError):
            joined_answer(api, bytes(answer), 7, read_config_request(api, a_request(api, _empty(api)), at), {})

    check()


def _damage(frame: bytearray, at: int, data: st.DataObject) -> None:
    del frame[data.draw(st.integers(at, len(frame))) :]
    if len(frame) > at:
        frame[data.draw(st.integers(at, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frame[:4] = (len(frame) - 4).to_bytes(4)
