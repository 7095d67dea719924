"""The cache of parsed request headers."""

import re

import pytest

from protocol.api_keys import API_VERSIONS, TABLE
from protocol.request_head import read_request_head
from proxy.session.header_cache import CREDENTIAL_KEYS, FRAME_BYTES_MAX, HEADS_MAX, HeaderCache
from tests.support.frames.kafka_frames import fetch, plain, request


def read(met: HeaderCache, frame: bytes) -> object:
    return met.read(frame, 0, len(frame) - 4, unknown_apis_pass=False)


def test_the_same_bytes_are_read_once() -> None:
    """Two requests that differ only in the correlation id share one parsed header."""
    met = HeaderCache()
    first, second = read(met, plain(1)), read(met, plain(2))
    assert first is second is not None
    plainly = read_request_head(plain(2), 0, len(plain(2)) - 4)
    assert plainly is not None
    assert all(getattr(first, name) == getattr(plainly, name) for name in plainly.__slots__ if name != "correlation_id")


def test_another_byte_is_another_head() -> None:
    """Requests with different limits, versions or client-ids have different parsed headers."""
    met = HeaderCache()
    frames = [fetch(1), fetch(1, max_bytes=7), fetch(1, version=4), plain(1), plain(1, client_id="other")]
    assert len({id(read(met, frame)) for frame in frames}) == len(frames)


def test_what_is_not_here_in_whole_is_not_remembered() -> None:
    """An incomplete or large frame is parsed and not cached."""
    met = HeaderCache()
    frame = plain(1)
    assert met.read(frame[:-1], 0, len(frame) - 4, unknown_apis_pass=False) is not read(met, frame)
    large = plain(1, client_id="x" * (FRAME_BYTES_MAX + 1))
    assert read(met, large) is not read(met, large)


BODY = b"hmac-or-password"
ALTERS_OR_SHOWS = re.compile("Sasl|DelegationToken|AlterUserScramCredentials|AlterConfigs")
BY_NAME = {api["name"]: api["key"] for api in TABLE["apis"] if ALTERS_OR_SHOWS.search(api["name"])}


@pytest.mark.parametrize("key", BY_NAME.values(), ids=BY_NAME)
def test_nothing_of_a_credential_is_kept(key: int) -> None:
    """Requests with credentials are not cached, in any version."""
    met = HeaderCache()
    for api in (api for api in API_VERSIONS.values() if api.key == key):
        assert read(met, request(api, BODY, 1)) is not None
    read(met, plain(1))  # is cached
    assert len(met._heads) == 1
    assert not any(BODY in kept for kept in met._heads)


def test_every_api_whose_body_is_a_credential_is_known() -> None:
    """The keys of APIs with credentials match their names in the table of APIs."""
    assert set(BY_NAME.values()) == CREDENTIAL_KEYS >= {17, 36, 38, 39, 40, 41, 51}


def test_the_number_of_heads_is_bounded() -> None:
    """The number of cached headers is bounded."""
    met = HeaderCache()
    for number in range(HEADS_MAX + 10):
        read(met, plain(1, client_id=str(number)))
    assert len(met._heads) <= HEADS_MAX
