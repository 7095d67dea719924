"""A request quota through sockets: from the configuration and the quota file to the throttle time that a client receives."""

import asyncio
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from proxy.base.host_port import HostPort
from proxy.config.model import Admin, Callback, Quotas
from quota.callbacks.callback import ClientQuotaCallback
from quota.entity import ClientQuotaType, KafkaPrincipal
from tests.support.frames.kafka_frames import throttle_ms
from tests.support.ports import free_port
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway, quotas
from tests.support.scripted.scripted_broker import Hold, ScriptedBroker
from tests.support.scripted.scripted_client import ScriptedClient
from tests.support.scripted.scripted_frames import METADATA, fetch_request, metadata_request
from tests.support.scripted.scripted_sockets import HOST, for_a_while

VERSION = 12
TINY = 1e-6
"""Percent: any request exceeds this quota."""
WINDOWS: dict[str, Any] = {"window_num": 3, "window_size_seconds": 2}


class TeamsShareTime(ClientQuotaCallback):
    """A callback whose clients share one budget per prefix of the client-id; the budget is a setting."""

    def configure(self, configs: Mapping[str, Any]) -> None:
        self.percent = float(configs["percent"])

    def quota_metric_tags(self, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> dict[str, str]:
        return {"team": client_id.split("-")[0]}

    def quota_limit(self, quota_type: ClientQuotaType, metric_tags: Mapping[str, str]) -> float | None:
        return self.percent if quota_type is ClientQuotaType.REQUEST else None


async def announced(client: ScriptedClient, client_id: bytes = b"etl") -> int:
    """Send a Metadata request and return the throttle time in its response."""
    return throttle_ms(await client.ask(metadata_request(1, version=VERSION, client_id=client_id)), METADATA, VERSION)


def scrape(admin: HostPort) -> list[Sample]:
    """Return the samples of /metrics."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=20) as answer:
        page = answer.read().decode()
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def value(samples: Sequence[Sample], name: str, **labels: str) -> float:
    """Return the value of the one sample with this name and these labels."""
    (found,) = (sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())
    return found


def request_groups(sluice: RunningGateway) -> dict[str, float]:
    """Return the seconds that each group was charged, by the values of its tags."""
    return {
        ",".join(group.tags.values()): group.recorded_total / 100 for scope in sluice.app.scopes.all() for group in scope.request.groups()
    }


async def test_a_quota_of_the_file_is_reported_in_windows_of_the_configuration(tmp_path: Path) -> None:
    """The throttle time is at most one configured window, and it is 0 after the quota is removed."""
    path = tmp_path / "quotas.toml"
    path.write_text(f'[[quota]]\nclient-id = "etl"\nrequest_percentage = {TINY}\n')
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", quotas=Quotas(path=path, **WINDOWS)) as sluice:
        assert await announced(await sluice.client()) == 2_000
        assert await announced(await sluice.client(), b"another") == 0
        sluice.set_quotas({})
        assert await announced(await sluice.client()) == 0


async def test_the_class_of_the_configuration_puts_clients_together() -> None:
    """The callback class receives its settings, and its clients share groups as its tags say."""
    choice = Callback(class_name=f"{__name__}:{TeamsShareTime.__name__}", settings={"percent": TINY})
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", callback=choice) as sluice:
        assert await announced(await sluice.client(), b"blue-one") == 1_000
        assert await announced(await sluice.client(), b"blue-two") == 1_000
        assert await announced(await sluice.client(), b"red-one") == 1_000
        assert set(request_groups(sluice)) == {"blue", "red"}


async def test_what_is_charged_can_be_seen() -> None:
    """Metrics show the seconds charged to a client, their share of the elapsed time, and the latencies of each API."""
    admin = HostPort(HOST, free_port())
    settings = {"admin": Admin(address=admin), "table": quotas(request=1e6), "quotas": Quotas(broker_threads=11)}
    async with ScriptedBroker() as broker, open_gateway(broker, **settings) as sluice:
        client = await sluice.client()
        for _ in range(50):
            assert await announced(client) == 0
        found = await asyncio.to_thread(scrape, admin)
        charged = value(found, "kafka_quota_request_seconds_total", client_id="etl")
        passed = value(found, "kafka_quota_timed_answer_seconds_total")
        assert 0 < charged <= passed
        assert value(found, "kafka_quota_request_time_share_ratio") == pytest.approx(charged / passed)
        assert value(found, "kafka_sluice_request_latency_seconds_bucket", api="Metadata", le="+Inf") == 50
        assert sum(request_groups(sluice).values()) == pytest.approx(charged, abs=1e-9)
        times = sluice.connections[0].session.responses.request_time.times
        assert times is not None
        assert times.rtt_ns > 0, "the kernel was not asked for the round trip"


async def test_requests_that_a_broker_keeps_do_not_keep_others_waiting() -> None:
    """What requests in flight have reserved of a schedule is free after a second, however long their client lets the broker keep them."""
    hold = Hold()
    settings = {"quotas": Quotas(pacing="paced", paced_burst_ms=1_000)}
    async with ScriptedBroker(hold) as broker, open_gateway(broker, table=quotas(request=0.1), **settings) as sluice:
        hostile = [await sluice.client() for _ in range(3)]
        for client in hostile:
            await client.send(fetch_request(1))
        await sluice.until_connections(3)
        other = await sluice.client()
        await other.send(metadata_request(1, version=VERSION))
        waiting = asyncio.ensure_future(other.read_frame())
        sluice.sweep(900)
        await for_a_while(0.1, lambda: not waiting.done())
        sluice.sweep(1_100)
        assert await asyncio.wait_for(waiting, 20)
        hold.release()
