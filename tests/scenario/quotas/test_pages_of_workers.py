"""Admin pages over two running data paths that are queried like workers."""

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.config.model import Enforcement
from proxy.observe.explain import explain
from proxy.observe.metrics.exposition import MetricsPage
from proxy.telemetry.loop_lag import LoopLag
from tests.support.memory.worker_states import FakeWorkers
from tests.support.scripted.gateway_fixture import open_gateway, quotas
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import correlation_id_of, produce_of_size


async def test_two_data_paths_are_shown_as_one_proxy() -> None:
    """The pages show the groups, connections, traffic and sharers of both data paths as those of one proxy."""
    table, cluster = quotas(produce=1e9), Enforcement(scope="cluster")
    async with (
        ScriptedBroker() as first_broker,
        ScriptedBroker() as second_broker,
        open_gateway(first_broker, table=table, enforcement=cluster) as first,
        open_gateway(second_broker, table=table, enforcement=cluster, clean=False) as second,
    ):
        for number, sluice in enumerate((first, second), 1):
            settings = sluice.app.data_path.session_settings
            settings.first_number, settings.number_step = number, 2
            for _ in range(number):
                client = await sluice.client()
                assert correlation_id_of(await client.ask(produce_of_size(50_000, 1))) == 1
        pages = FakeWorkers([first.app.state, second.app.state]).pages  # type: ignore[list-item]
        (group,) = [one for one in json.loads(await pages.quotas_page(None, 100))["groups"] if one["quota_type"] == "Produce"]
        totals = [next(iter(one.groups())).recorded_total for one in (first, second)]
        assert group["recorded_total"] == sum(totals) == pytest.approx(150_000, rel=0.01)
        rows = json.loads(await pages.connections_page({}, 0, 100))["connections"]
        assert [(row["number"], row["worker"]) for row in rows] == [(1, 1), (2, 2), (4, 2)]
        client_id = rows[0]["client_id"]
        shared = (await explain(pages, {}, None, client_id, None))["quotas"][0]["groups"][0]["shared_by"]
        assert (shared["connections"], shared["clients"], shared["named"][0]["connections"]) == (3, 1, 3)
        text = MetricsPage(LoopLag()).render(await pages.snapshot()).decode()
        found = {one.name: one.value for family in text_string_to_metric_families(text) for one in family.samples}
        assert (found["kafka_sluice_connections_open"], found["kafka_sluice_requests_total"]) == (3, 3)
