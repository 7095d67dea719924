"""The members of one fleet as processes, with a balancer in front of them, and what they have recorded."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from bench.fleet.relay import Address, Relay
from bench.harness.engine import HOST
from tests.support.ports import free_bootstrap_port
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

BOUND: Final = 1_000_000
"""Bytes per second, of each client-id."""
FIRST_HOST: Final = 10
"""Member n listens at 127.0.0.(n + 10), so that all members of a fleet have the same ports."""
SAMPLE_S: Final = 1.05
"""Time between two samples. A page is shared for a second, so a sample that comes later is not older than itself."""

Sample = tuple[float, Sequence[float]]
"""Seconds since the start, and the bytes that each member has recorded."""


class Fleet:
    """Members at one cluster, or one process without a fleet. A context manager.

    Args:
        size: number of members; 1: a process without a fleet.
        upstream: bootstrap addresses of the cluster.
        node_ids: its brokers.
        folder: for configurations.
        settings: lines of `[fleet]` in addition to the necessary ones.

    Attributes:
        size: number of members.
        members: the processes.
    """

    def __init__(self, size: int, upstream: str, node_ids: Sequence[int], folder: Path, settings: str = "") -> None:
        self.size = size
        self._direct_port, self._balanced_port = free_bootstrap_port(), free_bootstrap_port()
        self._node_ids = node_ids
        quotas = write_quotas(
            folder / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": BOUND, "consumer_byte_rate": BOUND}]
        )
        secret = folder / f"secret-{size}"
        secret.write_text(secrets.token_hex(32))
        secret.chmod(0o600)
        self.members: list[SluiceProcess] = []
        for number in range(size):
            config = folder / f"fleet-{size}-{number}.toml"
            config.write_text(self._configuration(number, upstream, folder, settings))
            name = f"bench-fleet-{size}-{number}"
            self.members.append(SluiceProcess(upstream, quotas=quotas, enforcement="mute", config=config, name=name))
        self._stack = ExitStack()

    def _configuration(self, number: int, upstream: str, folder: Path, settings: str) -> str:
        """Return a configuration with two listeners: clients of the second one stay at the balancer."""
        host, direct, balanced = self.host(number), self._direct_port, self._balanced_port
        lines = [
            f'runtime_dir = "{folder}/run-{self.size}-{number}"',
            f"[upstream]\nbootstrap = {json.dumps(upstream.split(','))}",
            f'[[listener]]\naddress = "{host}:{direct}"\nfirst_broker_port = {direct + 1}',
            f'[[listener]]\naddress = "{host}:{balanced}"\nadvertised_host = "{HOST}"\nfirst_broker_port = {balanced + 1}',
        ]
        if self.size > 1:
            lines += [
                f'[fleet]\nname = "fleet-{self.size}"\ntopic = "{fleet_topic(self.size)}"\nmember = "m{number}"',
                f'secret_file = "secret-{self.size}"\n{settings}',
            ]
        return "\n".join(lines)

    def host(self, number: int) -> str:
        """Return the address of a member's listeners."""
        return f"127.0.0.{FIRST_HOST + number}"

    def address(self, number: int) -> Address:
        """Return the address at which clients of one member begin."""
        return Address(self.host(number), self._direct_port)

    def broker_address(self, number: int, node_id: int) -> Address:
        """Return a member's address of a broker."""
        return Address(self.host(number), self._direct_port + 1 + node_id)

    @property
    def balanced_address(self) -> Address:
        """The address at which clients of the balancer begin."""
        return Address(HOST, self._balanced_port)

    def balancer(self) -> Relay:
        """Return a balancer that leads to the first member."""
        return Relay(self.behind_balancer(0))

    def behind_balancer(self, number: int) -> Mapping[int, Address]:
        """Return where the balancer's ports lead when it sends all clients to one member."""
        ports = (self._balanced_port, *(self._balanced_port + 1 + node_id for node_id in self._node_ids))
        return {port: Address(self.host(number), port) for port in ports}

    def __enter__(self) -> Self:
        with self._stack as stack:
            for member in self.members:
                stack.enter_context(member)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def recorded(self, kind: str, client_id: str) -> list[float]:
        """Return the bytes of a client-id that each member has recorded."""
        return [_recorded(member.quotas(), kind, client_id) for member in self.members]

    def statuses(self) -> list[dict[str, Any]]:
        """Return what each member says about the fleet; empty without a fleet."""
        return [json.loads(member.get("/fleet")[1]) for member in self.members] if self.size > 1 else []

    @property
    def lag_ms(self) -> float | None:
        """The highest lag of the bus that a member reports."""
        return max((status["lag_ms"] or 0.0 for status in self.statuses()), default=None)


def fleet_topic(size: int) -> str:
    """Return the topic of a fleet."""
    return f"__fleet_{size}"


def _recorded(page: Any, kind: str, client_id: str) -> float:
    groups = (group for group in page["groups"] if group["quota_type"].lower() == kind and group["tags"].get("client-id") == client_id)
    return float(sum(group["recorded_total"] for group in groups))


class Samples:
    """What the members of a fleet have recorded of a client-id, from its first usage on.

    Attributes:
        samples: in order of time.
    """

    def __init__(self, fleet: Fleet, kind: str, client_id: str) -> None:
        self._fleet, self._kind, self._client_id = fleet, kind, client_id
        self._begin_s: float | None = None
        self.samples: list[Sample] = []

    async def take(self, seconds: float, patience_s: float) -> None:
        """Sample for this time, which begins with the first usage.

        Raises:
            RuntimeError: nothing was used for `patience_s`.
        """
        called_s = time.monotonic()
        while self._begin_s is None or time.monotonic() - self._begin_s < seconds:
            recorded = await asyncio.to_thread(self._fleet.recorded, self._kind, self._client_id)
            now_s = time.monotonic()
            if self._begin_s is None and any(recorded):
                self._begin_s = now_s
            if self._begin_s is not None:
                self.samples.append((now_s - self._begin_s, recorded))
            elif now_s - called_s > patience_s:
                raise RuntimeError(f"nothing was used by {self._client_id} for {patience_s:g} s")
            await asyncio.sleep(SAMPLE_S)
