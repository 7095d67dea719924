"""`sluice demo`: starts cluster, proxy and clients, evaluates the run, and draws the picture."""

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple, NoReturn

from proxy.base.clock import now_ms
from proxy.base.packages import DEMO, missing, need, remedy
from proxy.demo import screen as words
from proxy.demo.children import ClientChild, DemoError, ProxyChild
from proxy.demo.clients.cast import ROLES, Role, quota_file
from proxy.demo.judgement.judgement import Judgement
from proxy.demo.judgement.proof import prove
from proxy.demo.judgement.watcher import Watcher
from proxy.demo.mock_cluster import MockCluster, MockClusterError
from proxy.demo.picture import Panel, draw
from proxy.demo.preload import preload
from proxy.demo.proxies import METERING, FleetSeen, arguments_of, fleet_of, wait_for_fleet
from proxy.demo.screen import Row, Screen
from proxy.demo.tenant import Tenant

BROKERS: Final = 3
REDRAW_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 12
MEAN_STEP_MS: Final = 250


class Played(NamedTuple):
    """A run that has ended."""

    tenants: list[Tenant]
    fleet: FleetSeen | None
    """None: there was one proxy."""


def run(seconds: int, svg: Path, proxies: int, *, paced: bool) -> int:
    """Run the demo; return the exit code: 0 all checks pass, 1 one fails, 2 the demo cannot run here."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _play(seconds, svg, proxies, paced=paced)
    except (DemoError, MockClusterError, OSError) as error:
        sys.stderr.write(f"sluice: {error}\n")
        return 2


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # the exit handlers end all processes


def _play(seconds: int, svg: Path, proxies: int, *, paced: bool) -> int:
    if paced and proxies > 1:
        raise DemoError("--pacing paced has one proxy in the demo; leave --proxies out")
    if lacking := missing(DEMO):
        raise DemoError(f"the demo {need(lacking)}; {remedy(lacking)}")
    if not svg.absolute().parent.is_dir():
        raise DemoError(f"there is no folder {svg.parent} for the picture")
    screen = Screen()
    for line in words.introduction(BROKERS, seconds, proxies, paced=paced):
        screen.print_line(line)
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        tenants, fleet = _perform(screen, seconds, Path(folder), proxies, paced=paced)
        judgements = [tenant.judge(seconds) for tenant in tenants]
        screen.print_line()
        for judgement in judgements:
            screen.verdict(judgement)
        if fleet is not None:
            screen.fleet(fleet)
        proof = prove(Path(folder) / METERING)
        screen.proof(proof)
        screen.print_line(words.rule(proxies, paced=paced))
    panels = [_panel(*one, seconds, is_alone=proxies == 1) for one in zip(tenants, judgements, strict=True)]
    svg.write_text(draw(panels, seconds, proxies, paced=paced))
    screen.print_line(f"Picture: {svg}")
    is_good = proof.is_good and (fleet is None or fleet.is_whole) and all(judgement.is_good for judgement in judgements)
    return 0 if is_good else 1


def _perform(screen: Screen, seconds: int, folder: Path, count: int, *, paced: bool) -> Played:
    """Run cluster, proxies and clients; at the return every process has ended, Sluice by SIGTERM, and their output is in `folder`."""
    with ExitStack() as stage:
        cluster = stage.enter_context(MockCluster(BROKERS))
        for role in ROLES:
            if role.node_id is not None:
                _set_topic(cluster, role, role.node_id, seconds)
        proxies = _start_proxies(stage, cluster, folder, count, paced=paced)
        watchers = [Watcher(proxy.admin_port) for proxy in proxies]
        tenants = [_start_clients(stage, role, proxies, watchers, seconds, folder) for role in ROLES]
        for client in _clients_of(tenants):
            client.wait_until_ready()
        with ExitStack() as watching:
            for watcher in watchers:
                watching.enter_context(watcher)
            _watch(screen, tenants, proxies, seconds)
        for watcher in watchers:
            watcher.poll()
            watcher.read_closes()
        return Played(tenants, fleet_of(proxies) if count > 1 else None)


def _start_proxies(stage: ExitStack, cluster: MockCluster, folder: Path, count: int, *, paced: bool) -> list[ProxyChild]:
    quotas = folder / "quotas.toml"
    quotas.write_text(quota_file())
    proxies = []
    for number in range(count):
        name = "sluice" if count == 1 else f"proxy-{number + 1}"
        proxies.append(ProxyChild(name, cluster.bootstrap, quotas, BROKERS, folder, arguments_of(folder, number, count, paced=paced)))
        stage.callback(proxies[-1].stop)
    if count > 1:
        wait_for_fleet(proxies)
    return proxies


def _start_clients(
    stage: ExitStack, role: Role, proxies: Sequence[ProxyChild], watchers: Sequence[Watcher], seconds: int, folder: Path
) -> Tenant:
    """Start a client at each proxy that the role uses; each one has an equal part of the load."""
    places, clients = role.proxies(len(proxies)), []
    for place in places:
        name = role.name if len(places) == 1 else f"{role.name} at proxy {place + 1}"
        clients.append(ClientChild(name, role, proxies[place].bootstrap, role.interval_ms * len(places), seconds, folder))
        stage.callback(clients[-1].stop)
    return Tenant(role, places, clients, [watchers[place] for place in places])


def _clients_of(tenants: Sequence[Tenant]) -> list[ClientChild]:
    return [client for tenant in tenants for client in tenant.clients]


def _set_topic(cluster: MockCluster, role: Role, node_id: int, seconds: int) -> None:
    partitions = role.partitions(seconds)
    cluster.create_topic(role.name, partitions)
    for partition in range(partitions):
        cluster.set_leader(role.name, partition, node_id)
    if role.quota_type == "Fetch":
        preload(cluster.bootstrap, role.name, partitions, role.record_bytes)


def _watch(screen: Screen, tenants: Sequence[Tenant], proxies: Sequence[ProxyChild], seconds: int) -> None:
    start_ms = now_ms()
    clients = _clients_of(tenants)
    for client in clients:
        client.go(start_ms)
    shown_s = -1
    while (elapsed_s := (now_ms() - start_ms) // 1_000) < seconds:
        for child in (*proxies, *clients):
            child.check()
        if screen.is_terminal or elapsed_s != shown_s:
            screen.show([_row(tenant, elapsed_s) for tenant in tenants], elapsed_s, seconds)
            shown_s = elapsed_s
        time.sleep(REDRAW_SECONDS)
    screen.show([_row(tenant, seconds) for tenant in tenants], seconds, seconds)
    for client in clients:
        client.wait(GRACE_SECONDS)


def _row(tenant: Tenant, elapsed_s: int) -> Row:
    group, now, series = tenant.group(), now_ms(), tenant.measured()
    rate, mean, bars = series.between(now - 1_000, now), series.span_mean(now), series.per_second(elapsed_s)
    return Row(tenant.role, rate, mean, bars, group.throttled_until_ms - now, group.held_now)


def _panel(tenant: Tenant, judgement: Judgement, seconds: int, *, is_alone: bool) -> Panel:
    role = tenant.role
    series, size = tenant.measured(), role.unit.rate_size
    steps = range(0, seconds * 1_000 + 1, MEAN_STEP_MS)
    return Panel(
        name=role.name,
        caption=" · ".join([role.title, *([role.library] if is_alone else tenant.where)]),
        unit=role.unit.rate,
        bound=None if role.bound is None else role.bound / size,
        wants=role.wants,
        measured=[value / size for value in series.per_second(seconds)],
        parts=[[value / size for value in part.per_second(seconds)] for part in tenant.parts()],
        predicted=[value / size for value in judgement.predicted],
        mean=[(step / 1_000, series.span_mean(series.start_ms + step) / size) for step in steps],
        result=_result(judgement),
        is_good=judgement.is_good,
    )


def _result(judgement: Judgement) -> str:
    unit = judgement.role.unit
    verb = {"Request": "charged", "Connection": "let in"}.get(judgement.role.quota_type, "passed")
    passed = f"{unit.amount_of(judgement.passed)} {unit.amount} {verb}"
    if judgement.parts:
        passed += f" ({' + '.join(map(unit.amount_of, judgement.parts))})"
    if judgement.allowed is None:
        return f"{passed} · never held"
    predicted = f"{passed} · {unit.amount_of(sum(judgement.predicted))} predicted"
    if judgement.role.quota_type == "Connection":
        return f"{predicted} · {judgement.refused} refused"
    if judgement.is_paced:
        return f"{predicted} · {judgement.unseen:,} requests waited"
    waits = "waits equal" if judgement.parts else "waits recomputed equal"
    return f"{predicted} · {judgement.equal} of {judgement.verdicts} {waits}"
