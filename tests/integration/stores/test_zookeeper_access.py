"""A ZooKeeper that authenticates its clients: TLS with certificates on both sides, and SASL."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.base.clock import wall_time_s
from proxy.config.sections.credentials import TlsFiles, client_context
from proxy.quota_store.zookeeper.access import Access
from quota.admin.kraft import Change
from quota.admin.messages import entity_key
from tests.support.kafka.zookeeper import ZookeeperServer
from tests.support.processes.stores import Opened, Place, opened_place, zookeeper_place
from tests.support.tls.certificates import Authority

pytestmark = pytest.mark.kafka

PRODUCE = "producer_byte_rate"
USERS = [entity_key([("user", f"user-{number}")]) for number in range(600)]
SAID = "s3cret, =comma"
ALICE = entity_key([("user", "alice")])


class Guarded:
    """A ZooKeeper with TLS and SASL, and the certificates of its clients."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.other = Authority(folder, "other")
        server = self.authority.issue("server", hosts=("127.0.0.1",))
        self.own = self.authority.issue("sluice")
        both = folder / "server.pem"
        both.write_bytes(server.certificate.read_bytes() + server.key.read_bytes())
        self.server = ZookeeperServer("zookeeper-guarded", secure=(both, self.authority.file), users={"sluice": SAID})

    def access(self, authority: Authority | None = None, said: str = SAID) -> Access:
        """Return the credentials of Sluice; `said` is the password."""
        files = TlsFiles(certificate=self.own.certificate, key=self.own.key, ca=(authority or self.authority).file)
        return Access(lambda: client_context(files, verify=True, now_s=wall_time_s()), None, login=("sluice", said))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("guarded"))
    with made.server:
        yield made


async def test_quotas_by_tls_and_a_login(guarded: Guarded) -> None:
    """With TLS and SASL, quotas are read, changed and followed: many nodes in one request, and single changes in order."""
    place = zookeeper_place(guarded.server.secure_address, access=guarded.access())
    async with opened_place(place):
        opened = await place.open()
        await opened.alter(*(Change(user, PRODUCE, 5.0) for user in USERS))
        other = await place.open()
        assert other.content == opened.content
        assert len(other.content.quotas) == len(USERS)
        for value in (6.0, 7.0, 8.0):
            await opened.alter(Change(ALICE, PRODUCE, value))
            await other.until(lambda content, value=value: content.quotas.get(ALICE) == {PRODUCE: value})  # type: ignore[misc]


async def problem_of(place: Place, expected: str) -> str:
    """Wait until the state of a starting store contains `expected`; return the state."""
    opened = Opened(place._make)
    starting = asyncio.create_task(opened.start())
    deadline = time.monotonic() + 30
    while expected not in (opened.store.status.error or ""):
        assert time.monotonic() < deadline, opened.store.status
        await asyncio.sleep(0.005)
    assert not starting.done()
    starting.cancel()
    await opened.close()
    return opened.store.status.error or ""


async def test_a_chroot_that_is_not_there(guarded: Guarded) -> None:
    """A chroot that does not exist is reported with the advice to create it, and does not count as a store without quotas."""
    place = zookeeper_place(f"{guarded.server.secure_address}/nowhere", access=guarded.access())
    assert "create that node" in await problem_of(place, "has no node for the chroot")


async def test_a_wrong_password(guarded: Guarded) -> None:
    """A wrong password is reported with the setting to check, and the message does not contain the password."""
    access = guarded.access(said="guessed")
    problem = await problem_of(zookeeper_place(f"{guarded.server.secure_address}/one", access=access), "SASL: ")
    assert "check quotas.auth_file" in problem
    assert "guessed" not in problem


async def test_a_server_with_an_untrusted_certificate(guarded: Guarded) -> None:
    """Sluice does not use a server whose certificate is not signed by the configured authority."""
    access = guarded.access(authority=guarded.other)
    problem = await problem_of(zookeeper_place(f"{guarded.server.secure_address}/one", access=access), "TLS: ")
    assert "check quotas.tls" in problem


async def test_a_port_that_speaks_no_tls(guarded: Guarded) -> None:
    """A port without TLS is reported by its address, with the advice to name ZooKeeper's secure port."""
    problem = await problem_of(zookeeper_place(f"{guarded.server.address}/one", access=guarded.access()), "TLS: ")
    assert f"{guarded.server.address} is ZooKeeper's secure port" in problem
