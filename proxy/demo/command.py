"""`sluice demo`: starts cluster, proxy and clients, evaluates the run, and draws the picture."""

import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from proxy.base.clock import now_ms
from proxy.demo import screen as words
from proxy.demo.children import METERING, ClientChild, DemoError, ProxyChild
from proxy.demo.clients.cast import ROLES, Role, quota_file
from proxy.demo.clients.visitors import VISITORS_ADDRESS
from proxy.demo.judgement.judgement import Judgement, judge, measured
from proxy.demo.judgement.proof import prove
from proxy.demo.judgement.watcher import GroupSeen, Watcher
from proxy.demo.mock_cluster import MockCluster, MockClusterError
from proxy.demo.picture import Panel, draw
from proxy.demo.preload import preload
from proxy.demo.screen import Row, Screen

BROKERS: Final = 3
REDRAW_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 12
MEAN_STEP_MS: Final = 250


def run(seconds: int, svg: Path) -> int:
    """Run the demo; return the exit code: 0 all checks pass, 1 one fails, 2 the demo cannot run here."""
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _play(seconds, svg)
    except (DemoError, MockClusterError, OSError) as error:
        sys.stderr.write(f"sluice: {error}\n")
        return 2


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)  # the exit handlers end all processes


def _play(seconds: int, svg: Path) -> int:
    if not svg.absolute().parent.is_dir():
        raise DemoError(f"there is no folder {svg.parent} for the picture")
    screen = Screen()
    for line in words.introduction(BROKERS, seconds):
        screen.print_line(line)
    with tempfile.TemporaryDirectory(prefix="sluice-demo-") as folder:
        clients, watcher = _perform(screen, seconds, Path(folder))
        judgements = [_judge(client, watcher, seconds) for client in clients]
        _report(screen, judgements)
        proof = prove(Path(folder) / METERING)
        screen.proof(proof)
        screen.print_line(words.rule())
    svg.write_text(draw([_panel(*one, watcher, seconds) for one in zip(clients, judgements, strict=True)], seconds))
    screen.print_line(f"Picture: {svg}")
    return 0 if proof.is_good and all(judgement.is_good for judgement in judgements) else 1


def _perform(screen: Screen, seconds: int, folder: Path) -> tuple[list[ClientChild], Watcher]:
    """Run cluster, proxy and clients; at the return every process has ended, Sluice by SIGTERM, and their output is in `folder`."""
    with ExitStack() as stage:
        cluster = stage.enter_context(MockCluster(BROKERS))
        for role in ROLES:
            if role.node_id is not None:
                _set_topic(cluster, role, role.node_id, seconds)
        quotas = folder / "quotas.toml"
        quotas.write_text(quota_file())
        proxy = ProxyChild(cluster.bootstrap, quotas, BROKERS, folder)
        stage.callback(proxy.stop)
        clients: list[ClientChild] = []
        for role in ROLES:
            clients.append(ClientChild(role, proxy.bootstrap, seconds, folder))
            stage.callback(clients[-1].stop)
        for client in clients:
            client.wait_until_ready()
        watcher = Watcher(proxy.admin_port)
        with watcher:
            _watch(screen, clients, watcher, proxy, seconds)
        watcher.poll()
        watcher.read_closes()
    return clients, watcher


def _judge(client: ClientChild, watcher: Watcher, seconds: int) -> Judgement:
    return judge(client.role, client.series, _group(client.role, watcher), seconds)


def _group(role: Role, watcher: Watcher) -> GroupSeen:
    return watcher.of(VISITORS_ADDRESS if role.quota_type == "Connection" else role.name, role.quota_type)


def _set_topic(cluster: MockCluster, role: Role, node_id: int, seconds: int) -> None:
    partitions = role.partitions(seconds)
    cluster.create_topic(role.name, partitions)
    for partition in range(partitions):
        cluster.set_leader(role.name, partition, node_id)
    if role.quota_type == "Fetch":
        preload(cluster.bootstrap, role.name, partitions, role.record_bytes)


def _watch(screen: Screen, clients: Sequence[ClientChild], watcher: Watcher, proxy: ProxyChild, seconds: int) -> None:
    start_ms = now_ms()
    for client in clients:
        client.go(start_ms)
    shown_s = -1
    while (elapsed_s := (now_ms() - start_ms) // 1_000) < seconds:
        for child in (proxy, *clients):
            child.check()
        if screen.is_terminal or elapsed_s != shown_s:
            screen.show([_row(client, watcher, elapsed_s) for client in clients], elapsed_s, seconds)
            shown_s = elapsed_s
        time.sleep(REDRAW_SECONDS)
    screen.show([_row(client, watcher, seconds) for client in clients], seconds, seconds)
    for client in clients:
        client.wait(GRACE_SECONDS)


def _row(client: ClientChild, watcher: Watcher, elapsed_s: int) -> Row:
    group = _group(client.role, watcher)
    now, series = now_ms(), measured(client.role, client.series, group)
    rate, mean, bars = series.between(now - 1_000, now), series.span_mean(now), series.per_second(elapsed_s)
    return Row(client.role, rate, mean, bars, group.throttled_until_ms - now, group.held_now)


def _report(screen: Screen, judgements: Sequence[Judgement]) -> None:
    screen.print_line()
    for judgement in judgements:
        screen.verdict(judgement)


def _panel(client: ClientChild, judgement: Judgement, watcher: Watcher, seconds: int) -> Panel:
    role = client.role
    series, size = measured(role, client.series, _group(role, watcher)), role.unit.rate_size
    steps = range(0, seconds * 1_000 + 1, MEAN_STEP_MS)
    return Panel(
        name=role.name,
        caption=f"{role.title} · {role.library}",
        unit=role.unit.rate,
        bound=None if role.bound is None else role.bound / size,
        wants=role.wants,
        measured=[value / size for value in series.per_second(seconds)],
        predicted=[value / size for value in judgement.predicted],
        mean=[(step / 1_000, series.span_mean(series.start_ms + step) / size) for step in steps],
        result=_result(judgement),
        is_good=judgement.is_good,
    )


def _result(judgement: Judgement) -> str:
    unit = judgement.role.unit
    verb = {"Request": "charged", "Connection": "let in"}.get(judgement.role.quota_type, "passed")
    passed = f"{unit.amount_of(judgement.passed)} {unit.amount} {verb}"
    if judgement.allowed is None:
        return f"{passed} · never held"
    predicted = f"{passed} · {unit.amount_of(sum(judgement.predicted))} predicted"
    if judgement.role.quota_type == "Connection":
        return f"{predicted} · {judgement.refused} refused"
    return f"{predicted} · {judgement.equal} of {judgement.verdicts} waits recomputed equal"
