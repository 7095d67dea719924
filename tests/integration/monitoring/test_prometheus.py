"""The real Prometheus scrapes Sluice from another machine, and every query of board and rules has an answer."""

import os
import signal
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.support.kubernetes.manifests import KUBERNETES, objects, scrape_config
from tests.support.monitoring.prometheus import Prometheus, has_numbers
from tests.support.monitoring.queries import Query, queries_of_board, queries_of_rules, queries_of_variables
from tests.support.monitoring.scraped_sluice import ADMIN, ScrapedSluice
from tests.support.patience import until_true
from tests.support.processes.namespaces import NoNamespacesError, Wire
from tests.support.tools import require_tool

pytestmark = [pytest.mark.namespace, pytest.mark.long]

EXPECTED_ALERTS = {"SluiceWorkerDied"}
"""The test kills a worker. No other alert fires within a minute."""
SECONDS_MAX = 90.0
"""A time limit against hangs; the last query has an answer far earlier."""


class Monitored(NamedTuple):
    """A Sluice under load, and the Prometheus that scrapes it."""

    sluice: ScrapedSluice
    prometheus: Prometheus


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitored]:
    """Yield Sluice in one network namespace and Prometheus in another; job `sluice` has the token, job `open` has none."""
    require_tool("prometheus", "prometheus")
    try:
        wire = Wire()
    except NoNamespacesError as problem:
        pytest.skip(str(problem))
    folder = tmp_path_factory.mktemp("monitored")
    with wire, ScrapedSluice(wire, folder) as sluice:
        (folder / "prometheus").mkdir()
        with Prometheus(wire, folder / "prometheus", scrape_configs(sluice)) as prometheus:
            yield Monitored(sluice, prometheus)


def scrape_configs(sluice: ScrapedSluice) -> list[dict[str, object]]:
    """Return the scrape of the ServiceMonitor, and the same target without a token."""
    scrape = scrape_config(objects(KUBERNETES / "manifests/ports.yaml"), ADMIN, sluice.secrets)
    place = {key: scrape[key] for key in ("scheme", "tls_config")}
    return [scrape, place | {"job_name": "open", "static_configs": [{"targets": [ADMIN]}]}]


def test_every_query_has_an_answer(monitored: Monitored) -> None:
    """Under load, after a change of quotas, a reload and the death of a worker, each query of board, variables and rules has a number."""
    sluice, prometheus = monitored
    pending = {*queries_of_board(), *queries_of_rules(), *queries_of_variables()}
    until_true(lambda: has_numbers(prometheus.series('up{job="sluice"} == 1')), "the first scrape")
    assert sluice.post("/admin/quotas", {"entries": [{"entity": {"user": "bob"}, "ops": {"producer_byte_rate": 5_000}}]}) == 200
    assert sluice.post("/admin/switches", {"target": "entity:client-id=web", "mode": "observe"}) == 200
    sluice.reload()
    os.kill(sluice.workers()[0], signal.SIGKILL)

    def is_answered() -> bool:
        answers: dict[Query, list[dict[str, object]]] = prometheus.ask(pending)
        pending.difference_update(query for query, series in answers.items() if has_numbers(series))
        return not pending

    try:
        until_true(is_answered, seconds=SECONDS_MAX)
    except AssertionError as error:
        raise AssertionError(f"without an answer: {sorted(pending)}") from error
    until_true(lambda: prometheus.alerts() >= EXPECTED_ALERTS, "the alert")
    assert prometheus.alerts() == EXPECTED_ALERTS


def test_names_need_the_token(monitored: Monitored) -> None:
    """The job without a token gets the sums of all clients, and no series of a group."""
    _, prometheus = monitored
    until_true(lambda: has_numbers(prometheus.series('up{job="open"} == 1')), "the first scrape")
    assert prometheus.series('kafka_quota_limit{job="open"}') == []
    named = prometheus.series("count by (job, client_id) (kafka_quota_bytes_total)")
    clients = {job: {one["metric"]["client_id"] for one in named if one["metric"]["job"] == job} for job in ("open", "sluice")}
    assert clients["open"] == {"__other__"}
    assert clients["sluice"] >= {"etl", "reports", "web", "app"}
