"""CPU of a request with a fleet of two members, compared with the same two Sluices without a fleet, at a real broker."""

from __future__ import annotations

import secrets
from contextlib import ExitStack

from bench.cost.intervals import Interval
from bench.harness.engine import Engine
from bench.harness.frames import produce_request
from bench.harness.records import record_batch
from bench.workers.cost import Demand, Side, compare
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.jars import KRAFT
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import create_topic

CONNECTIONS = 16
RATE = 2_000.0
RECORD_BYTES = 200
TOPIC = "fleet-cost"


def fleet_cost(*, starts: int, pairs: int, seconds: float) -> Interval:
    """Return the CPU of supervisors and workers for a request with a fleet over that without; the hub does not serve requests."""
    with ExitStack() as stack:
        engine = Engine()
        stack.callback(engine.close)
        cluster = stack.enter_context(KafkaCluster(KRAFT, name="fleet-cost"))
        with JavaTools(KRAFT) as tools:
            create_topic(tools, cluster.bootstrap, TOPIC)
        (engine.folder / "secret").write_text(secrets.token_hex(32))
        (engine.folder / "secret").chmod(0o600)
        demand = Demand(produce_request(7, record_batch(bytes(RECORD_BYTES)), topic=TOPIC), CONNECTIONS, RATE)
        sides = []
        for is_fleet in (True, False):
            flags = []
            for number in range(2):
                config = engine.folder / f"{'fleet' if is_fleet else 'alone'}-{number}.toml"
                config.write_text(
                    f'supervised = true\n[fleet]\nname = "cost"\nmember = "m{number}"\nsecret_file = "secret"\n'
                    if is_fleet
                    else "supervised = true\n"
                )
                flags.append(["--config", str(config)])
            sides.append(Side([1, 1], demand, flags))
        port = int(cluster.bootstrap.rsplit(":", 1)[1])
        return compare(engine, *sides, starts=starts, pairs=pairs, seconds=seconds, broker_port=port, without="sluice-hub").ratio
