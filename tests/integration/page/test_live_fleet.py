"""The live page of a member of a fleet in Chromium: who belongs to the fleet, and who is silent."""

import os
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import expect

from proxy.demo.mock_cluster import MockCluster
from tests.support.fleet.fleet_process import FleetProcess, eventually
from tests.support.page.browser import LIMIT_MS, WatchedPage, chromium
from tests.support.patience import stop_process
from tests.support.processes.sluice_process import SluiceProcess, write_quotas
from tests.support.processes.sluice_workers import hubs_of

pytestmark = pytest.mark.mock


def member(name: str, folder: Path, cluster: MockCluster) -> FleetProcess:
    """Return a member whose bus is a folder; it is not started."""
    config = folder / f"{name}.toml"
    config.write_text(
        f'runtime_dir = "{folder / name}"\n[quotas]\npath = "quotas.toml"\n'
        f'[fleet]\nname = "edge"\nmember = "{name}"\nsecret_file = "secret"\ndirectory = "{folder / "bus"}"\n'
    )
    return FleetProcess(SluiceProcess(cluster.bootstrap, arguments=("--config", str(config)), name=f"page-{name}"))


def test_the_members_of_a_fleet(tmp_path: Path) -> None:
    """Head and view show all members with the lag; a member whose hub stops is shown as silent until it goes on."""
    write_quotas(tmp_path / "quotas.toml", [{"client-id": "<default>", "producer_byte_rate": 50_000.0}])
    (tmp_path / "bus").mkdir(mode=0o700)
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text("0123456789abcdef" * 2)
    with ExitStack() as stack:
        cluster = stack.enter_context(MockCluster(1))
        one, other = (member(name, tmp_path, cluster) for name in ("north", "south"))
        for process in (one, other):
            stack.enter_context(process.sluice)
        eventually(lambda: [seen["is_heard"] for seen in one.fleet()["members"]] == [True, True])
        watched = WatchedPage(stack.enter_context(chromium()), f"http://127.0.0.1:{one.sluice.admin_port}")
        expect.set_options(timeout=LIMIT_MS)
        page = watched.open("#/connections")
        expect(page.locator("dl")).to_contain_text(re.compile(r"Fleet\s*2 of 2 members, lag [\d.]+ m?s"))
        members = page.get_by_role("table", name="Members")
        expect(members).to_contain_text(re.compile(r"north\s*heard\s*equal quotas.*south\s*heard\s*equal quotas", re.DOTALL))
        (hub,) = hubs_of(other.sluice.pid)
        stop_process(hub)
        expect(members).to_contain_text(re.compile(r"south\s*silent for"))
        expect(page.locator("dl")).to_contain_text("1 of 2 members")
        os.kill(hub, signal.SIGCONT)
        expect(members).to_contain_text(re.compile(r"south\s*heard"))
        watched.close()
        assert watched.errors == []
