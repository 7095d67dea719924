"""Request time with a schedule, from the data path over the files to the verdict: what is within passes, and what is early is found."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from pipeline.replay.findings import Kind
from pipeline.validation.verdict import Verdict
from protocol.api_keys import ApiKey
from proxy.enforcement.paced.factory import PacedGroups
from proxy.enforcement.paced.time_group import PacedTimeGroup
from proxy.shared_usage.paced.groups import PacedSharing
from proxy.shared_usage.shared_usage import SharedUsage
from sluice_cli.meter import meter
from tests.proxy.session.paced.test_paced_produce import answer
from tests.proxy.session.throttle.test_request_time import empty_answer, empty_request
from tests.support.frames.kafka_frames import request_ids
from tests.support.memory.memory_connection import ManualLoop, Peer, ProxyFixture
from tests.support.memory.metered_fixture import MeteredFixture
from tests.support.memory.shared_workers import new_segment
from tests.support.memory.verdicts import produce_of
from tests.support.memory.worker_proxies import publish_on_time

LIST_OFFSETS = (ApiKey.LIST_OFFSETS, 2)
HEARTBEAT = (ApiKey.HEARTBEAT, 1)
SECONDS = 21
Answer = Callable[[int], bytes]


class Client:
    """A connection with one request in flight, which the broker answers after a time of its own."""

    def __init__(self, proxy: ProxyFixture, peer: Peer, ask: Answer, reply: Answer, work_ms: int) -> None:
        self._proxy, self._peer, self._ask, self._reply, self._work_ms = proxy, peer, ask, reply, work_ms
        self.number = 0
        peer.broker.write = peer.connection.client.write_peer = self._goes  # type: ignore[method-assign]

    def send(self) -> None:
        """Send the next request."""
        self.number += 1
        self._peer.client.arrive(self._ask(self.number))

    def _goes(self, data: bytes | memoryview) -> None:
        assert request_ids(bytes(data)) == [self.number]
        self._proxy.loop.call_later((1 + (self.number * self._work_ms) % 7) / 1_000, self._answer)

    def _answer(self) -> None:
        self._peer.broker.arrive(self._reply(self.number))
        self._proxy.loop.call_later(0, self.send)


def plain(api: tuple[int, int]) -> tuple[Answer, Answer]:
    """Return the requests and the answers of an API."""
    return lambda number: empty_request(number, *api), lambda number: empty_answer(number, *api)


PRODUCE = (lambda number: produce_of(5_000, number), answer)
LOADS = [(1, plain(LIST_OFFSETS)), (1, plain(LIST_OFFSETS)), (2, plain(LIST_OFFSETS)), (2, PRODUCE)]
"""Last part of a client's address, and its requests: two members."""


def validated(
    directory: Path, loads: list[tuple[int, tuple[Answer, Answer]]], *, seconds: int = SECONDS, level: str = "packed"
) -> tuple[Verdict, int]:
    """Return the verdict on the files of a run, and the number of rows with the lead of a schedule of request time."""
    with MeteredFixture(directory, request=1.0, produce=20_000.0, factories=PacedGroups(200), level=level) as proxy:
        for number, (host, (ask, reply)) in enumerate(loads):
            Client(proxy, proxy.connect(host=f"10.0.0.{host}"), ask, reply, 3 + number).send()
        for second in range(seconds):
            proxy.wait(1_000)
            proxy.collect()
            if second == seconds // 2:
                proxy.set_quota(request=0.5)
        verdict = proxy.written()
    refs = {row["group_ref"] for row in proxy.rows("dim_group") if row["quota_type"] == "Request"}
    return verdict, sum(row["lead_ns"] is not None for row in proxy.rows("samples") if row["group_ref"] in refs)


@pytest.mark.parametrize("level", ["packed", "trace"])
def test_what_the_schedule_admits_has_no_divergence(tmp_path: Path, level: str) -> None:
    """The files of requests that a schedule of handler time admits, of two members and with a change of the bound, have no divergence."""
    verdict, rows = validated(tmp_path, LOADS, level=level)
    assert verdict.kinds() == {}
    assert rows >= SECONDS


@pytest.mark.parametrize(("heartbeats", "level"), [(6, "packed"), (12, "trace")])
def test_requests_beside_excused_ones_have_no_divergence(tmp_path: Path, heartbeats: int, level: str) -> None:
    """Heartbeats that pass before their time take a part of the bound, or more than it.

    What was admitted before them and is answered after them is not early, and what they leave is all that members share.
    """
    verdict, _ = validated(tmp_path, [*LOADS, *[(1, plain(HEARTBEAT))] * heartbeats], level=level)
    assert verdict.kinds() == {}


def of_workers(directory: Path, seconds: int) -> tuple[Verdict, list[int]]:
    """Return the verdict on the files of two workers with clients of both members each, and the requests of each client."""
    loop, segment, proxies = ManualLoop(), new_segment(2), []
    for number in range(2):
        usage = SharedUsage(segment, number)
        publish_on_time(usage, loop)
        factories = PacedGroups(200, factories=usage)
        proxies.append(MeteredFixture(directory, request=1.0, produce=20_000.0, factories=factories, loop=loop, usage=usage))
    clients = []
    with proxies[0]:
        for number, (host, (ask, reply)) in enumerate([*LOADS, (1, plain(LIST_OFFSETS)), (2, plain(HEARTBEAT))]):
            proxy = proxies[number % 2]
            clients.append(Client(proxy, proxy.connect(host=f"10.0.0.{host}"), ask, reply, 3 + number))
            clients[-1].send()
        for second in range(seconds):
            loop.run_until(loop.now_ms + 1_000)
            for proxy in proxies:
                proxy.collect()
                if second == seconds // 2:
                    proxy.set_quota(request=0.5)
    return [proxy.written() for proxy in proxies][-1], [client.number for client in clients]


def test_the_schedules_of_workers_have_no_divergence(tmp_path: Path) -> None:
    """Two workers know what each other has charged and reserved: each schedule, and that of all files together, has no divergence."""
    verdict, requests = of_workers(tmp_path, SECONDS)
    assert verdict.kinds() == {}
    assert min(requests) > SECONDS


def test_requests_of_another_worker_that_pass_early_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If workers do not record what the others have charged, together they pass more than one schedule lets them: EARLY."""
    monkeypatch.setattr(PacedSharing, "pull", lambda *_arguments: None)
    verdict, _ = of_workers(tmp_path, 4)
    assert Kind.EARLY in verdict.kinds()


def test_the_pipeline_knows_the_unit_of_handler_time(tmp_path: Path) -> None:
    """A what-if replays the schedule with another percentage, and a recommendation is a percentage, of what a busy group wanted."""
    validated(tmp_path / "run", LOADS[:3], seconds=4)
    found = {}
    for percent in (0.1, 1.0, 100.0):
        quotas = tmp_path / "quotas.toml"
        quotas.write_text(f'[[quota]]\nclient-id = "etl"\nrequest_percentage = {percent}\n')
        said = CliRunner().invoke(meter, ["whatif", "--in", str(tmp_path / "run"), "--quotas", str(quotas), "--format", "json"])
        [row] = [row for row in json.loads(said.stdout)["scenarios"][0]["groups"] if row["quota_type"] == "Request"]
        assert (row["pacing_today"], row["pacing"]) == ("paced", "paced")
        found[percent] = row["wait_ms"]
    assert found[0.1] > 10 * found[1.0] >= found[100.0] == 0
    said = CliRunner().invoke(meter, ["recommend", "--in", str(tmp_path / "run"), "--format", "json", "--headroom", "1"])
    [proposal] = [row for row in json.loads(said.stdout)["proposals"] if row["quota_type"] == "Request"]
    assert (proposal["pacing"], proposal["span_s"]) == ("paced", 0.2)
    assert 0.5 <= proposal["bound"] <= 20.0


def test_requests_that_keep_a_membership_are_excused(tmp_path: Path) -> None:
    """Heartbeats that pass after a second, since they keep a membership, have no divergence, although they exceed the bound."""
    verdict, _ = validated(tmp_path, [(1, plain(HEARTBEAT)) for _ in range(90)], seconds=3)
    assert verdict.kinds() == {}


def test_requests_that_pass_early_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If requests pass before the schedule of handler time lets them, they are EARLY."""
    monkeypatch.setattr(PacedTimeGroup, "due_ns", lambda *_arguments: 0)
    verdict, _ = validated(tmp_path, LOADS[:3], seconds=3)
    assert verdict.kinds().keys() == {Kind.EARLY}
