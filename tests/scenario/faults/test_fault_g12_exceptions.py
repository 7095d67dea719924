"""Row G12: an exception in Sluice's own code, at any point of the data path, ends one connection and affects no other."""

import asyncio
from typing import Any

import pytest

from proxy.enforcement.quota_scope import ClientQuota
from proxy.net.connection import Connection
from proxy.net.gateway import Gateway
from proxy.net.relay.broker_channel import BrokerChannel
from proxy.net.relay.client_channel import ClientChannel
from proxy.net.throttled_channels import ThrottledChannels
from proxy.session.reading import Reading
from proxy.session.requests.classifier import RequestClassifier
from proxy.session.requests.fetch_requests import FetchRequests
from proxy.session.requests.known_heads import KnownHeads
from proxy.session.requests.pending_requests import PendingRequests
from proxy.session.requests.recorded_requests import RecordedRequests
from proxy.session.requests.request_side import RequestSide
from proxy.session.responses.answer_verdicts import AnswerVerdicts
from proxy.session.responses.held_responses import HeldResponses
from proxy.session.responses.request_time_verdicts import RequestTimeVerdicts
from proxy.session.responses.response_side import ResponseSide
from proxy.session.rewrite import Rewriter
from proxy.session.throttle.fetch_admission import FetchAdmission
from proxy.session.throttle.throttle_state import ThrottleState
from quota.groups.group import QuotaGroup
from quota.manager import ClientQuotaManager
from tests.support.frames.kafka_frames import api_versions, fetch, metadata
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import api_versions_request, correlation_id_of, produce_of_size, produce_request
from tests.support.scripted.scripted_sockets import until

POINTS: list[tuple[type[Any], str]] = [
    (RequestSide, "scan"),
    (RequestSide, "_scan_heads"),
    (KnownHeads, "_read"),
    (PendingRequests, "keep_over"),
    (PendingRequests, "keep"),
    (FetchRequests, "pass_run"),
    (RecordedRequests, "record_unanswered"),
    (RequestSide, "resume"),
    (ResponseSide, "scan"),
    (ResponseSide, "_scan_answers"),
    (AnswerVerdicts, "judge"),
    (RequestTimeVerdicts, "take"),
    (ResponseSide, "_change"),
    (HeldResponses, "release"),
    (ResponseSide, "take_own_replies"),
    (ThrottleState, "judge"),
    (ThrottleState, "judge_unanswered"),
    (ThrottleState, "in_flight_max"),
    (ThrottleState, "depart"),
    (FetchAdmission, "admits"),
    (FetchAdmission, "forwarded"),
    (FetchAdmission, "answered"),
    (ClientQuota, "produce"),
    (ClientQuota, "fetch"),
    (ClientQuota, "produce_throttled"),
    (ClientQuotaManager, "group"),
    (QuotaGroup, "record"),
    (QuotaGroup, "would_throttle_ms"),
    (Rewriter, "walker"),
    (Rewriter, "what_for"),
    (RequestClassifier, "resolve"),
    (RequestClassifier, "_make"),
    (Connection, "settle"),
    (Reading, "next_step"),
    (Connection, "_read"),
    (Connection, "_settle_end"),
    (ClientChannel, "shrink_receive_buffer"),
    (BrokerChannel, "shrink_receive_buffer"),
    (Connection, "client_eof"),
    (Connection, "client_made"),
    (Gateway, "_rewriter"),
    (Gateway, "_upstream_of"),
    (ThrottledChannels, "schedule"),
]


class FailingMethod:
    """Raises once when the patched method is called while it is armed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str) -> None:
        self.armed = False
        self.raised = 0
        original = getattr(owner, name)

        def method(*arguments: Any, **named: Any) -> Any:
            if self.armed:
                self.armed = False
                self.raised += 1
                raise RuntimeError(f"injected into {owner.__name__}.{name}")
            return original(*arguments, **named)

        monkeypatch.setattr(owner, name, method)


async def send_every_kind(client: ScriptedClient) -> None:
    """Send requests of every kind, then leave; stop when the connection ends."""
    try:
        await client.send(api_versions(1, 99) + metadata(2) + fetch(3, version=11, max_bytes=1 << 30))
        await client.read_frames(3)
        await client.send(produce_of_size(10_100, 4) + produce_request(5))
        await client.read_frames(2)
        await client.send(produce_request(6, acks=0) + fetch(7, version=11) + produce_request(8))
        client.half_close()
        await client.read_to_end()
    except ConnectionError:
        pass
    finally:
        client.close()


async def served(sluice: RunningGateway, client: ScriptedClient, number: int) -> bool:
    """Return whether an uninvolved client is answered."""
    return correlation_id_of(await client.ask(api_versions_request(number))) == number


@pytest.mark.parametrize(("owner", "name"), POINTS, ids=[f"{owner.__name__}.{name}" for owner, name in POINTS])
async def test_g12_one_connection_ends(owner: type[Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception in the data path closes the connection that met it and is counted once; another client is served before and after."""
    failing = FailingMethod(monkeypatch, owner, name)
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1_000, fetch=1_000, request=1e6)) as sluice:
        sluice.expects_internal_errors = True
        bystander = await sluice.client()
        assert await served(sluice, bystander, 1)
        failing.armed = True
        victim = await ScriptedClient.connect(sluice.port)
        await send_every_kind(victim)
        await until(lambda: len(sluice.connections) == 1)
        assert failing.raised == 1, "this point was never reached"
        assert await served(sluice, bystander, 2)
        assert sluice.closes.get("internal_error", 0) == 1, (sluice.closes, sluice.loop_errors)
        assert sluice.counters.internal_errors == 1
        assert len(sluice.loop_errors) == 1


@pytest.mark.parametrize(
    ("owner", "name"), [(RequestSide, "resume"), (HeldResponses, "release"), (ThrottleState, "cancel"), (Connection, "settle")]
)
async def test_g12_in_a_drain(owner: type[Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one connection fails during a drain, the other connections drain as usual."""
    failing = FailingMethod(monkeypatch, owner, name)
    async with ScriptedBroker() as broker, open_gateway(broker, table=quotas(produce=1_000), serves=False) as sluice:
        sluice.expects_internal_errors = True
        clients = [await sluice.client() for _ in range(3)]
        for client in clients:
            await client.send(produce_of_size(14_004, 1, version=7))
        await until(lambda: sum("throttle" in one.broker.paused_for for one in sluice.connections) == 3)
        failing.armed = True
        await asyncio.wait_for(sluice.app.drain(), 20)
        answers = [await client.read_to_end() for client in clients]
        assert sorted(map(bool, answers)) == [False, True, True]
        assert sluice.closes == {"internal_error": 1, "drain": 2}


async def test_g12_in_the_sweeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the check of one connection's deadlines raises, that connection closes and the others are still checked."""
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        sluice.expects_internal_errors = True
        clients = [await sluice.client() for _ in range(3)]
        for number, client in enumerate(clients):
            assert await served(sluice, client, number)
        failing = FailingMethod(monkeypatch, type(sluice.gateway.connection_deadlines), "_verdict")
        failing.armed = True
        sluice.sweep(later_ms=700_000)
        await until(lambda: len(sluice.connections) == 0)
        assert sluice.closes == {"internal_error": 1, "idle": 2}
