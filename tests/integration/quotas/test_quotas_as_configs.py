"""Quotas as configurations (KIP-422) in front of a real broker: a request too large for Sluice to read changes nothing."""

import socket

import pytest

from protocol.api_keys import API_VERSIONS
from protocol.limits import MAX_CONFIG_REQUEST_BYTES
from protocol.messages.config_resources import USER
from sluice.admin import ClientQuotaEntity, QuotaAdmin
from tests.integration.conftest import Route
from tests.support.frames.config_frames import a_request, results_of
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
TOPIC = 2
ALTER, DESCRIBE = API_VERSIONS[44 << 16 | 1], API_VERSIONS[32 << 16 | 4]
CAROL, SET = "carol", [{"Name": "producer_byte_rate", "ConfigOperation": 0, "Value": "1024"}]


def asked(address: str, frame: bytes) -> bytes:
    """Send one request on a new connection; return its answer."""
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rb") as stream:
        connection.sendall(frame)
        size = stream.read(4)
        return size + stream.read(int.from_bytes(size, "big"))


def test_a_request_too_large_to_be_looked_at_changes_nothing(route: Route) -> None:
    """A request that is too large for Sluice goes to the broker, which refuses user quotas with error 42; the same change in a small one is
    made.
    """
    fill = [{"ResourceType": TOPIC, "ResourceName": f"{at:05}" + "t" * 200} for at in range(MAX_CONFIG_REQUEST_BYTES // 200)]
    user = {"ResourceType": USER, "ResourceName": CAROL}
    with SluiceProcess(route.direct, arguments=("--quota-admin", "User:ANONYMOUS"), name="sluice-large-configs") as sluice:
        changes = [{**user, "Configs": SET}, *({**one, "Configs": []} for one in fill)]
        large = asked(sluice.bootstrap, a_request(ALTER, {"Resources": changes, "ValidateOnly": False}))
        refused = {one["ErrorCode"] for one in results_of(ALTER, large)[1] if one["ResourceType"] != TOPIC}
        wanted = [{**one, "ConfigurationKeys": None} for one in (user, *fill)]
        reported = asked(
            sluice.bootstrap, a_request(DESCRIBE, {"Resources": wanted, "IncludeSynonyms": False, "IncludeDocumentation": False})
        )
        assert (refused, {one["ErrorCode"] for one in results_of(DESCRIBE, reported)[1]}) == ({42}, {42})
        with QuotaAdmin(sluice.bootstrap) as admin, QuotaAdmin(route.direct) as direct:
            assert admin.describe_client_quotas() == {}
            alone = asked(sluice.bootstrap, a_request(ALTER, {"Resources": changes[:1], "ValidateOnly": False}))
            assert [one["ErrorCode"] for one in results_of(ALTER, alone)[1]] == [0]
            carol = ClientQuotaEntity.of({"user": CAROL})
            assert admin.describe_client_quotas() == {carol: {"producer_byte_rate": 1_024.0}}
            assert carol not in direct.describe_client_quotas()
