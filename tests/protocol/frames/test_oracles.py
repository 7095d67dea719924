"""The walkers agree with two independent codecs, over every version that these can decode."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol.api_keys import API_VERSIONS, ApiVersion
from protocol.errors import ProtocolError
from protocol.layout import layout_of
from protocol.messages.addresses import splice_report
from tests.support.frames import layout_codec
from tests.support.frames.message_strategies import BODY_AT, HOSTS, NODE_IDS, PORTS, damaged, frames
from tests.support.frames.oracles import ORACLES, OracleError

SPLICED = [api for api in API_VERSIONS.values() if api.splice]
BY_NAME = pytest.mark.parametrize("api", SPLICED, ids=lambda api: f"{api.name}-v{api.version}")
ADDRESSES = st.dictionaries(NODE_IDS.filter(lambda node_id: node_id >= 0), st.tuples(HOSTS, PORTS), max_size=4)
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

Addresses = dict[int, tuple[str, int]]


def replaced(tree: Any, addresses: Addresses) -> Any:
    """Return a decoded message with the host and port of every entry whose id is in `addresses` replaced."""
    if isinstance(tree, (list, tuple)):
        return [replaced(item, addresses) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if tree.get("endpoint_type", tree.get("EndpointType", 1)) != 1:
        addresses = {}
    by_name = {name.lower().replace("_", ""): name for name in tree}
    address = addresses.get(tree.get(by_name.get("nodeid", by_name.get("brokerid", "")), -1))
    changed = {} if address is None or "host" not in by_name else dict(zip((by_name["host"], by_name["port"]), address, strict=True))
    return {name: replaced(item, addresses) for name, item in (tree | changed).items()}


def spliced(api: ApiVersion, frame: bytes, addresses: Addresses) -> bytes:
    """Splice with a plain mapping."""
    return splice_report(api, frame, lambda node_id, _host, _port: addresses.get(node_id)).frame


def judge(api: ApiVersion, frame: bytes, after: bytes, addresses: Addresses) -> int:
    """Compare decode(splice(frame)) with replace(decode(frame)) by each oracle that reads the frame; return how many did."""
    body_at = BODY_AT[api.response_header_version]
    judges = 0
    for oracle in ORACLES:
        if oracle.covers(api.key, api.version):
            try:
                before = oracle.decode(api.key, api.version, frame, body_at)
            except OracleError:
                continue
            assert replaced(oracle.decode(api.key, api.version, after, body_at), {}) == replaced(before, addresses), oracle.name
            judges += 1
    return judges


@BY_NAME
def test_splice_then_decode_is_decode_then_replace(api: ApiVersion) -> None:
    """After a splice every oracle that supports the version finds the new addresses and no other change."""
    expected = sum(oracle.covers(api.key, api.version) for oracle in ORACLES)

    @QUICK
    @given(frame=frames(api), addresses=ADDRESSES)
    def check(frame: bytes, addresses: Addresses) -> None:
        assert judge(api, frame, spliced(api, frame, addresses), addresses) == expected

    check()


@BY_NAME
def test_unknown_tagged_fields_survive(api: ApiVersion) -> None:
    """Unknown tagged fields, which the oracles cannot read, survive a splice according to the plain model."""
    layout = layout_of(api.key, "response", api.version)
    body_at = BODY_AT[api.response_header_version]

    @QUICK
    @given(frame=frames(api, unknown_tags=True), addresses=ADDRESSES)
    def check(frame: bytes, addresses: Addresses) -> None:
        after = spliced(api, frame, addresses)
        before, end = layout_codec.decode(layout, frame, body_at)
        assert end == len(frame)
        found, end = layout_codec.decode(layout, after, body_at)
        assert end == len(after)
        assert replaced(found, {}) == replaced(before, addresses)
        assert layout_codec.encode(layout, found) == after[body_at:]

    check()


@BY_NAME
def test_damaged_messages_are_refused_or_spliced_alike(api: ApiVersion) -> None:
    """When both an oracle and the splice accept a damaged message, both have the same addresses afterwards."""

    @QUICK
    @given(frame=damaged(frames(api)), addresses=ADDRESSES)
    def check(frame: bytes, addresses: Addresses) -> None:
        try:
            after = spliced(api, frame, addresses)
        except ProtocolError:
            return
        if len(frame) > 8 and (api.response_header_version == 0 or frame[8] == 0):
            judge(api, frame, after, addresses)

    check()


def test_what_no_oracle_covers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The unstable share APIs of 3.9 are the only ones that neither oracle can read."""
    covered = {oracle.name: [api for api in SPLICED if oracle.covers(api.key, api.version)] for oracle in ORACLES}
    neither = [f"{api.name} v{api.version}" for api in SPLICED if not any(api in apis for apis in covered.values())]
    with capsys.disabled():
        for name, apis in covered.items():
            print(f"\n{name} decodes {len(apis)} of {len(SPLICED)} versions with addresses", end="")
        print(f"\nneither decodes: {', '.join(neither)}")
    assert neither == ["ShareFetch v0", "ShareAcknowledge v0"]
