"""Two proxies of one fleet at a real Kafka that share the limits on connections. The tests share one pair of proxies."""

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.validation.local import validate
from pipeline.validation.text import lines_of
from tests.support.fleet.fleet_process import PATIENCE_S, FleetProcess, eventually
from tests.support.kafka.broker import KafkaCluster
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.successors import is_running

pytestmark = pytest.mark.kafka

SAMPLES = 101
"""So many samples of a second keep connections in the window on a busy machine."""
COUNTED, RATED, BARRIER = "127.0.0.2", "127.0.0.3", "127.0.0.4"
"""Addresses of clients: with a limit on connections, with a limit on their rate, and one that shows when messages have arrived."""
COUNT = 3
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


class Member(FleetProcess):
    """A proxy of the fleet."""

    def __init__(self, kraft: KafkaCluster, folder: Path, name: str) -> None:
        config = folder / f"{name}.toml"
        config.write_text(
            f'runtime_dir = "{folder / name}"\n[quotas]\npath = "quotas.toml"\nwindow_num = {SAMPLES}\n[enforcement]\nscope = "cluster"\n'
            f'[connections]\noverrides = {{ "{COUNTED}" = {COUNT}, "{BARRIER}" = 1 }}\n'
            f'[fleet]\nname = "edge"\nmember = "{name}"\ntopic = "__fleet-connections"\nsecret_file = "secret"\nconnections = true\n'
            f'[metering]\ndir = "metering"\nproxy_id = "{name}"\nlevel = "trace"\n'
        )
        super().__init__(SluiceProcess(kraft.bootstrap, arguments=("--config", str(config)), name=f"fleet-connections-{name}"))

    def connect(self, address: str) -> socket.socket | None:
        """Connect from an address; return the connection if Kafka answers through it, None: it was closed."""
        sock = socket.create_connection(("127.0.0.1", self.sluice.port), PATIENCE_S, source_address=(address, 0))
        with contextlib.suppress(ConnectionError):
            sock.sendall(API_VERSIONS)
            if sock.recv(4):
                return sock
        sock.close()
        return None

    def serves(self, address: str) -> bool:
        """Connect from an address for a moment; return whether Kafka answers."""
        sock = self.connect(address)
        if sock is None:
            return False
        sock.close()
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both proxies."""
    folder = tmp_path_factory.mktemp("fleet-connections")
    write_quotas(folder / "quotas.toml", [{"ip": RATED, "connection_creation_rate": 1}])
    (folder / "secret").write_text("0123456789abcdef" * 2)
    (folder / "secret").chmod(0o600)
    return folder


@pytest.fixture(scope="module")
def pair(kraft: KafkaCluster, folder: Path) -> Iterator[tuple[Member, Member]]:
    """Two members that hear each other."""
    one, other = (Member(kraft, folder, name) for name in "ab")
    with ExitStack() as stack:
        for member in (one, other):
            stack.enter_context(member.sluice)
        eventually(lambda: all(sum(seen["is_heard"] for seen in member.fleet()["members"]) == 2 for member in (one, other)))
        yield one, other


def test_an_address_at_its_limit_at_one_proxy_is_refused_at_the_other(pair: tuple[Member, Member]) -> None:
    """An address with all its connections at one proxy is refused at the other, until they end; another address is served meanwhile."""
    one, other = pair
    held = [one.connect(COUNTED) for _ in range(COUNT)]
    assert None not in held
    assert one.connect(COUNTED) is None
    eventually(lambda: not other.serves(COUNTED))
    assert other.serves("127.0.0.1")
    assert other.fleet()["connections"]["open_elsewhere"] == COUNT
    assert all(seen["shares_connections"] and seen["has_equal_limits"] for seen in other.fleet()["members"])
    for sock in held:
        assert sock is not None
        sock.close()
    eventually(lambda: other.serves(COUNTED))


def test_connections_of_an_address_at_one_proxy_count_in_its_rate_at_the_other(pair: tuple[Member, Member]) -> None:
    """After an address has used up its rate at one proxy, its first connection to the other is not served."""
    one, other = pair
    served = 0
    while one.serves(RATED):
        served += 1
    assert served >= SAMPLES - 1
    barrier = one.connect(BARRIER)
    assert barrier is not None
    eventually(lambda: not other.serves(BARRIER))
    assert not other.serves(RATED)
    barrier.close()


def test_an_upgrade_continues_what_is_shared(pair: tuple[Member, Member]) -> None:
    """Connections that an upgraded proxy still serves count at the other one until they end, and the rate of an address goes on."""
    one, other = pair
    held = [one.connect(COUNTED) for _ in range(COUNT)]
    assert None not in held
    eventually(lambda: not other.serves(COUNTED))
    one.sluice.send(signal.SIGUSR2)
    eventually(lambda: bool(one.sluice.events("took_over")))
    eventually(lambda: not one.serves(COUNTED))
    assert not other.serves(COUNTED)
    assert not one.serves(RATED)
    for sock in held:
        assert sock is not None
        sock.close()
    eventually(lambda: one.serves(COUNTED) and other.serves(COUNTED))


def test_decisions_on_connections_of_a_fleet_can_be_proved(pair: tuple[Member, Member], folder: Path) -> None:
    """Metering of both supervisors validates bit for bit, with connections of the other proxy in the rates. This test ends the proxies."""
    one, other = pair
    upgraded = one.sluice.events("took_over")[-1]["pid"]
    one.sluice.wait()
    os.kill(upgraded, signal.SIGTERM)
    eventually(lambda: not is_running(upgraded))
    other.sluice.stop()
    verdict = validate(folder / "metering")
    assert verdict.kinds() == {}, list(lines_of(verdict, 20, explain=True))
    assert verdict.shared is not None
    assert verdict.shared.workers == 3  # one of each proxy, and one of the upgraded one
    assert [(fleet.without_files, fleet.not_compared) for fleet in verdict.fleets] == [([], [])]
    assert verdict.shared.remote_units >= SAMPLES - 1
