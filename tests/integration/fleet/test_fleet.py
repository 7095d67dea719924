"""Two proxies of one fleet at a real Kafka: one budget, over restarts, upgrades and deaths of the hub, and metering that fits."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.support.clients import confluent
from tests.support.clients.topics import new_topic
from tests.support.fleet.fleet_process import PATIENCE_S, FleetProcess, eventually
from tests.support.kafka.broker import KafkaCluster
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import hubs_of
from tests.support.processes.successors import is_running

pytestmark = pytest.mark.kafka

SAMPLES = 101
"""So many samples of a second keep usage in the window for longer than a restart or an upgrade takes on a busy machine."""
BOUND = 12_000
LARGE = (SAMPLES + 2) * BOUND
"""More than the bound allows in a window."""
_numbers = itertools.count()


class Member(FleetProcess):
    """A proxy of the fleet."""

    def __init__(self, kraft: KafkaCluster, folder: Path, name: str, topic: str) -> None:
        config = folder / f"{name}.toml"
        config.write_text(
            f'runtime_dir = "{folder / name}"\n[quotas]\npath = "quotas.toml"\nwindow_num = {SAMPLES}\n[enforcement]\nmode = "mute"\n'
            f'[fleet]\nname = "edge"\nmember = "{name}"\ntopic = "{topic}"\nsecret_file = "secret"\n'
            f'[metering]\ndir = "metering"\nproxy_id = "{name}"\nlevel = "trace"\n'
        )
        super().__init__(SluiceProcess(kraft.bootstrap, arguments=("--config", str(config)), name=f"fleet-{name}"))

    def names(self) -> list[str]:
        """Return the names of the members that this one hears."""
        return [one["member"] for one in self.fleet()["members"] if one["is_heard"]]

    def produce(self, topic: str, size: int, client_id: str = "etl") -> bool:
        """Produce one record of this size; return whether its response had a throttle time."""
        throttles: list[float] = []
        settings = {"bootstrap.servers": self.sluice.bootstrap, "client.id": client_id, "message.max.bytes": 2_000_000, **confluent.QUIET}
        producer = Producer({**settings, "throttle_cb": lambda event: throttles.append(event.throttle_time)})
        producer.produce(topic, bytes(size))
        producer.flush(PATIENCE_S)
        producer.poll(0.5)
        return bool(throttles)


@pytest.fixture
def topic(kraft: KafkaCluster) -> str:
    """A topic for records."""
    return new_topic(kraft.bootstrap, f"fleet-records-{next(_numbers)}", config={"max.message.bytes": "2000000"})


@pytest.fixture
def pair(kraft: KafkaCluster, tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    """Two members that hear each other."""
    write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND}])
    (tmp_path / "secret").write_text("0123456789abcdef" * 2)
    (tmp_path / "secret").chmod(0o600)
    bus = f"__fleet-{next(_numbers)}"
    one, other = (Member(kraft, tmp_path, name, bus) for name in "ab")
    with ExitStack() as stack:
        for member in (one, other):
            stack.enter_context(member.sluice)
        eventually(lambda: one.names() == ["a", "b"] and other.names() == ["b", "a"])
        yield one, other


def test_what_one_proxy_passes_counts_at_the_other(pair: tuple[Member, Member], topic: str) -> None:
    """After a client has used up the bound at one proxy, the first request of its client-id at the other is throttled, and no other's."""
    one, other = pair
    assert one.produce(topic, LARGE)
    assert other.produce(topic, 10)
    assert not other.produce(topic, 10, client_id="another")
    (group,) = (row for row in other.sluice.quotas()["groups"] if "etl" in str(row) and row["quota_type"] == "Produce")
    assert group["observed"] > BOUND
    assert group["fleet"]["elsewhere_total"] >= LARGE > group["recorded_total"]
    assert group["fleet"]["others"] == 1
    assert group["fleet"]["lag_ms"] > 0


def test_a_proxy_that_restarts_gives_no_free_window(pair: tuple[Member, Member], topic: str) -> None:
    """A proxy that has restarted throttles the first request of a client that used up the bound at the other proxy before."""
    one, other = pair
    assert one.produce(topic, LARGE)
    other.sluice.stop()
    other.sluice.start()
    assert other.produce(topic, 10)


def test_a_hub_that_is_killed_is_back_within_seconds(pair: tuple[Member, Member], topic: str) -> None:
    """A proxy whose hub was killed has a new one, and knows what the other proxy passed meanwhile."""
    one, other = pair
    (hub,) = hubs_of(other.sluice.pid)
    joined = len(other.sluice.events("fleet_joined"))
    os.kill(hub, signal.SIGKILL)
    assert one.produce(topic, LARGE)
    eventually(lambda: len(other.sluice.events("fleet_joined")) > joined)
    assert other.fleet()["hub_starts"] == 2
    assert other.produce(topic, 10)
    assert [event["exit_code"] for event in other.sluice.events("fleet_hub_died")][-1:] == [-signal.SIGKILL]


def test_an_upgrade_continues_the_fleet(pair: tuple[Member, Member], topic: str) -> None:
    """The hub of the new version takes over from that of the old one: usage of both proxies continues, and no hub counts as dead."""
    one, other = pair
    died = len(other.sluice.events("fleet_hub_died"))
    assert one.produce(topic, LARGE)
    upgraded = len(other.sluice.events("took_over"))
    other.sluice.send(signal.SIGUSR2)
    eventually(lambda: len(other.sluice.events("took_over")) > upgraded)
    assert other.produce(topic, 10)
    eventually(lambda: one.names() == ["a", "b"] and other.names() == ["b", "a"])
    assert len(other.sluice.events("fleet_hub_died")) == died
    new = other.sluice.events("took_over")[-1]["pid"]
    other.sluice.wait()
    os.kill(new, signal.SIGTERM)
    eventually(lambda: not is_running(new))


def test_the_hub_of_a_killed_supervisor_goes_on_until_the_next_one_takes_over(pair: tuple[Member, Member], topic: str) -> None:
    """While a proxy has no supervisor its hub takes part in the fleet; the next supervisor has a hub of its own, and the old one ends."""
    one, other = pair
    (hub,) = hubs_of(other.sluice.pid)
    other.sluice.kill()
    eventually(lambda: one.names() == ["a", "b"])
    assert one.produce(topic, LARGE)
    other.sluice.start()
    assert other.produce(topic, 10)
    eventually(lambda: not is_running(hub))
    (new,) = hubs_of(other.sluice.pid)
    assert new != hub


def test_decisions_of_a_fleet_can_be_proved(pair: tuple[Member, Member], topic: str, tmp_path: Path) -> None:
    """Metering of both proxies validates bit for bit, and each recorded what the other one used, once."""
    one, other = pair
    for member, size in ((one, LARGE // 2), (other, LARGE // 2), (other, 1_000), (one, 1_000)):
        member.produce(topic, size)
    for member in (one, other):
        member.sluice.stop()
    verdict = validate(tmp_path / "metering")
    assert set(verdict.kinds()) <= {"STALE"}, list(lines_of(verdict, 20, explain=True))  # a slow machine may be late
    assert verdict.shared is not None
    assert verdict.shared.remote_units + verdict.shared.skipped_units >= LARGE  # on a slow machine some is older than all samples
    (fleet,) = verdict.fleets
    assert (fleet.name, fleet.without_files, fleet.not_compared) == ("edge", [], [])
    assert fleet.compared > 0
    produced = {usage.member: usage.units for usage in fleet.usage if usage.quota_type == "Produce"}
    assert min(produced["a"], produced["b"]) >= LARGE // 2
