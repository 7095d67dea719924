"""The table of APIs decides how the proxy treats each request."""

import re

import pytest

from protocol.api_keys import (
    API_VERSIONS,
    HIDDEN_KEYS,
    KNOWN_KEYS,
    MAX_VERSIONS,
    TABLE,
    ApiKey,
    ThrottlePosition,
    Treatment,
    client_api_keys,
    keys_to_drop,
    unknown_api_version,
)


def test_the_enumeration_is_the_table() -> None:
    """ApiKey has exactly the names and numbers of apis.json."""
    in_table = {re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", api["name"]).upper(): api["key"] for api in TABLE["apis"]}
    assert {key.name: key.value for key in ApiKey} == in_table
    assert sorted(in_table.values()) == list(range(93))


@pytest.mark.parametrize(
    ("key", "version", "treatment"),
    [
        pytest.param(ApiKey.PRODUCE, 11, Treatment.OBSERVE, id="produce"),
        pytest.param(ApiKey.FETCH, 4, Treatment.OBSERVE, id="fetch"),
        pytest.param(ApiKey.SHARE_FETCH, 1, Treatment.OBSERVE, id="share-fetch"),
        pytest.param(ApiKey.API_VERSIONS, 3, Treatment.ANSWER, id="api-versions"),
        pytest.param(ApiKey.METADATA, 12, Treatment.PASS, id="metadata"),
        pytest.param(ApiKey.WRITE_TXN_MARKERS, 1, Treatment.PASS, id="an-admin-aborts-transactions-with-it"),
        pytest.param(ApiKey.ADD_RAFT_VOTER, 0, Treatment.PASS, id="the-address-in-it-is-the-admin's-own"),
        pytest.param(ApiKey.DESCRIBE_QUORUM, 1, Treatment.PASS, id="quorum-without-addresses"),
        pytest.param(ApiKey.DESCRIBE_QUORUM, 2, Treatment.REFUSE, id="quorum-with-controller-addresses"),
        pytest.param(ApiKey.UPDATE_METADATA, 8, Treatment.REFUSE, id="inter-broker"),
        pytest.param(ApiKey.VOTE, 0, Treatment.REFUSE, id="controller"),
        pytest.param(ApiKey.ENVELOPE, 0, Treatment.REFUSE, id="forwarded"),
        pytest.param(ApiKey.WRITE_SHARE_GROUP_STATE, 0, Treatment.REFUSE, id="share-state"),
    ],
)
def test_treatment(key: ApiKey, version: int, treatment: Treatment) -> None:
    """Each API is forwarded, observed, answered or refused as the table of treatments says."""
    assert API_VERSIONS[key << 16 | version].treatment is treatment


def test_hidden_keys() -> None:
    """Inter-broker and controller APIs are hidden, including those of ZooKeeper-mode brokers."""
    assert sorted(HIDDEN_KEYS) == [4, 5, 6, 7, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82, 83, 84, 85, 86, 87]
    assert not HIDDEN_KEYS & set(MAX_VERSIONS)
    assert client_api_keys() == set(MAX_VERSIONS)


def test_maxima_leave_out_what_is_refused() -> None:
    """The highest version of DescribeQuorum is the last one without controller addresses; those of other APIs are of the newest release."""
    assert MAX_VERSIONS[ApiKey.DESCRIBE_QUORUM] == 1
    assert (MAX_VERSIONS[ApiKey.PRODUCE], MAX_VERSIONS[ApiKey.FETCH], MAX_VERSIONS[ApiKey.METADATA]) == (13, 18, 13)


def test_keys_to_drop() -> None:
    """Hidden APIs are always dropped; unknown ones are dropped unless they are allowed."""
    strict, lenient = keys_to_drop(unknown_apis_pass=False), keys_to_drop(unknown_apis_pass=True)
    assert all(key in strict and key in lenient for key in HIDDEN_KEYS)
    assert 10_000 in strict
    assert 10_000 not in lenient
    assert not any(key in strict or key in lenient for key in client_api_keys())


def test_only_controlled_shutdown_v0_has_header_v0() -> None:
    """ControlledShutdown v0 is the only request without a client-id."""
    without = [(api.key, api.version) for api in API_VERSIONS.values() if api.request_header_version == 0]
    assert without == [(ApiKey.CONTROLLED_SHUTDOWN, 0)]


def test_api_versions_answers_have_a_plain_header() -> None:
    """ApiVersions answers have header v0 in every version, so that a client can read them before it knows the version."""
    assert {api.response_header_version for api in API_VERSIONS.values() if api.key == ApiKey.API_VERSIONS} == {0}


def test_a_vendors_api_passes_unread() -> None:
    """Of an API with an unknown key only the header is read."""
    api = unknown_api_version(10_001, 3)
    assert (api.treatment, api.throttle, api.splice, api.request_header_version) == (Treatment.PASS, ThrottlePosition.NONE, False, 1)
    assert 10_001 not in KNOWN_KEYS
