"""Two Sluices on one store: a change at one takes effect at the other, and neither loses the other's changes."""

import itertools
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, QuotaAdmin
from tests.support.kafka.broker import KafkaCluster
from tests.support.processes.sluice_process import SluiceProcess
from tests.support.processes.stores import PATIENCE_S, new_chroot

pytestmark = pytest.mark.kafka

PRODUCE = "producer_byte_rate"
_numbers = itertools.count()


@pytest.fixture(params=["file", "zookeeper", "topic"])
def settings(request: pytest.FixtureRequest, kraft: KafkaCluster, tmp_path: Path) -> str:
    """Return the lines below [quotas] for a new store."""
    match request.param:
        case "file":
            (tmp_path / "quotas.toml").write_text("# ours\n")
            (tmp_path / "quotas.toml").chmod(0o600)
            return 'path = "quotas.toml"\n'
        case "zookeeper":
            connect = new_chroot(request.getfixturevalue("zookeeper"), f"replicas-{next(_numbers)}")
            return f'store = "zookeeper"\nconnect = "{connect}"\ncreate = true\n'
        case _:
            return f'store = "topic"\ntopic = "replicas-{next(_numbers)}"\ncreate = true\n'


@pytest.fixture
def pair(settings: str, kraft: KafkaCluster, tmp_path: Path) -> Iterator[tuple[SluiceProcess, SluiceProcess]]:
    """Two Sluices with that store."""
    config = tmp_path / "sluice.toml"
    config.write_text(f"[quotas]\n{settings}")
    arguments = ("--config", str(config), "--quota-admin", "User:ANONYMOUS")
    with ExitStack() as stack:
        one, other = (
            stack.enter_context(SluiceProcess(kraft.bootstrap, arguments=arguments, name=f"sluice-replica-{name}")) for name in "ab"
        )
        yield one, other


def readiness(sluice: SluiceProcess) -> dict[str, str]:
    """Return what /readyz reports of the quota store."""
    with urllib.request.urlopen(f"http://127.0.0.1:{sluice.admin_port}/readyz", timeout=5) as answer:
        checks = json.load(answer)["checks"]
    return next(check for check in checks if check["name"] == "quota_source")


def in_force(admin: QuotaAdmin) -> dict[str, float]:
    """Return the quotas of users by name."""
    found = admin.describe_client_quotas()
    return {str(entity.entries["user"]): values[PRODUCE] for entity, values in found.items()}


def set_quota(admin: QuotaAdmin, name: str, value: float | None) -> None:
    """Set the quota of a user."""
    entity = ClientQuotaEntity.of({"user": name})
    results = admin.alter_client_quotas([ClientQuotaAlteration(entity, {PRODUCE: value})])
    assert results[entity] is None, results


def test_a_change_at_one_is_in_force_at_the_other(pair: tuple[SluiceProcess, SluiceProcess]) -> None:
    """A change at either Sluice takes effect at the other, and when both alter at once all changes are kept."""
    with QuotaAdmin(pair[0].bootstrap) as one, QuotaAdmin(pair[1].bootstrap) as other:
        for writer, reader, value in ((one, other, 1_000.0), (other, one, 2_000.0)):
            set_quota(writer, "alice", value)
            assert in_force(writer) == {"alice": value}
            answered = time.monotonic()
            while in_force(reader) != {"alice": value}:
                assert time.monotonic() - answered < PATIENCE_S
                time.sleep(0.01)

        def several(admin: QuotaAdmin, name: str) -> None:
            for number in range(60):
                set_quota(admin, f"{name}{number}", 1.0 + number)

        writers = [threading.Thread(target=several, args=(admin, name)) for admin, name in ((one, "a"), (other, "b"))]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        expected = {"alice": 2_000.0} | {f"{name}{number}": 1.0 + number for name in "ab" for number in range(60)}
        deadline = time.monotonic() + PATIENCE_S
        while not in_force(one) == in_force(other) == expected:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert readiness(pair[0])["ok"], readiness(pair[0])
    assert "121 entries" in readiness(pair[1])["detail"]
