"""Responses are rewritten before they reach the client."""

import json
from pathlib import Path

import pytest

from protocol.api_keys import API_VERSIONS, ApiKey
from protocol.errors import ProtocolError
from protocol.messages.addresses import splice
from protocol.messages.api_versions import read_api_keys
from protocol.steps import Pace, finished
from proxy.session.request_context import AS_IT_IS, BROKERS, ENDPOINTS, WALK, WHOLE
from proxy.session.rewrite import ApiVersionsCut, Rewriter

FRAMES = Path(__file__).parents[3] / "vectors" / "frames"
OURS = ("sluice.example", 19_092)


def rewriter(*, sidecar: bool = False, redact: bool = True) -> Rewriter:
    """Return a rewriter whose brokers are all at `OURS`."""
    client_address = None if sidecar else lambda _node_id, _host, _port: OURS
    return Rewriter(client_address, None, ApiVersionsCut(unknown_apis_pass=False), redact_configs=redact)


def cases(file: str) -> list[dict[str, object]]:
    """Return the golden cases of one file."""
    return json.loads((FRAMES / file).read_text())["cases"]


@pytest.mark.parametrize(
    ("key", "version", "expected"),
    [
        pytest.param(ApiKey.PRODUCE, 9, AS_IT_IS, id="produce-before-endpoints"),
        pytest.param(ApiKey.PRODUCE, 10, ENDPOINTS, id="produce-with-endpoints"),
        pytest.param(ApiKey.FETCH, 15, AS_IT_IS, id="fetch-before-endpoints"),
        pytest.param(ApiKey.FETCH, 16, WALK, id="fetch-with-endpoints"),
        pytest.param(ApiKey.METADATA, 12, BROKERS, id="metadata"),
        pytest.param(ApiKey.API_VERSIONS, 3, WHOLE, id="api-versions"),
        pytest.param(ApiKey.DESCRIBE_CONFIGS, 4, WHOLE, id="describe-configs"),
        pytest.param(ApiKey.HEARTBEAT, 4, AS_IT_IS, id="heartbeat"),
    ],
)
def test_what_is_looked_at(key: int, version: int, expected: int) -> None:
    """A gateway rewrites the responses that carry addresses or configurations and those to ApiVersions, and passes all others unchanged."""
    assert rewriter().what_for(API_VERSIONS[key << 16 | version]) == expected


def test_a_sidecar_looks_only_at_api_versions() -> None:
    """A sidecar, whose broker advertises the sidecar's address, rewrites ApiVersions responses only."""
    sidecar = rewriter(sidecar=True)
    assert {key for (key, _), api in ((divmod(index, 65_536), api) for index, api in API_VERSIONS.items()) if sidecar.what_for(api)} == {
        ApiKey.API_VERSIONS
    }


@pytest.mark.parametrize("name", ["3.9.1-kraft-v0", "3.9.1-kraft-v3", "4.3.1-kraft-v3", "4.3.1-kraft-v4"])
def test_a_broker_is_cut_once(name: str) -> None:
    """The second ApiVersions response of a broker is the cached result of the first with the correlation id of its own request."""
    case = next(case for case in cases("apiversions.json") if case["name"] == name)
    frame, version = bytes.fromhex(str(case["response"])), int(str(case["version"]))
    cut = ApiVersionsCut(unknown_apis_pass=False)
    first = cut.cut(version, frame)
    second = cut.cut(version, frame[:4] + b"\x00\x00\x30\x39" + frame[8:])
    assert second[4:8] == b"\x00\x00\x30\x39"
    assert second[:4] + first[4:8] + second[8:] == first
    assert int.from_bytes(first[:4], "big") == len(first) - 4
    assert ApiKey.ENVELOPE not in {key for key, _, _ in read_api_keys(version, first)}


def test_an_answer_about_controllers_does_not_leave() -> None:
    """A DescribeCluster response about controllers is an error, since no listener stands for a controller."""
    case = next(case for case in cases("addresses.json") if case.get("controllers"))
    with pytest.raises(ProtocolError) as error:
        rewriter().rewrite(API_VERSIONS[int(str(case["key"])) << 16 | int(str(case["version"]))], bytes.fromhex(str(case["frame"])))
    assert error.value.reason == "unmapped"


def test_a_broker_without_a_listener_does_not_leave() -> None:
    """A response that names a broker without a listener is an error."""
    case = next(case for case in cases("addresses.json") if case["name"] == "Metadata-v12-many")
    lonely = Rewriter(lambda *_: None, None, ApiVersionsCut(unknown_apis_pass=False), redact_configs=True)
    with pytest.raises(ProtocolError) as error:
        lonely.rewrite(API_VERSIONS[int(str(case["key"])) << 16 | int(str(case["version"]))], bytes.fromhex(str(case["frame"])))
    assert error.value.reason == "unmapped"


def test_a_walked_answer_leaves_with_our_addresses_however_it_is_cut() -> None:
    """A Fetch response that passes in pieces keeps its length and contains no broker's host name."""
    case = next(case for case in cases("addresses.json") if case["key"] == 1 and str(case["name"]).endswith("-many") and case["ids"])
    api = API_VERSIONS[int(str(case["key"])) << 16 | int(str(case["version"]))]
    frame = bytes.fromhex(str(case["frame"]))
    hosts: list[bytes] = []
    splice(api, frame, lambda _node_id, host, _port: hosts.append(host.encode()) or OURS)
    for step in (1, 7, 64, len(frame)):
        walker = rewriter().walker(api, len(frame))
        passed = b"".join(finished(walker.feed(frame[at : at + step], Pace())) for at in range(0, len(frame), step))
        assert len(passed) == len(frame)
        assert not any(host in passed for host in hosts if len(host) > 3)
