"""The reference pages name every setting, flag, metric and size form, and nothing that does not exist."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.base.units import read_size
from proxy.config.model import Callback, Config, Connections, Enforcement, Limits, Listener, Log, Metering, Quotas, Upstream
from proxy.config.sections.admin import Admin, AdminTls, AdminToken, Audit, QuotaAdmin
from proxy.config.sections.fleet import Fleet
from proxy.config.sections.groups import Group, GroupBudget, GroupMatch
from proxy.config.sections.login import Credentials
from proxy.config.sections.metering import Upload
from proxy.config.sections.tls import ListenerTls, UpstreamTls
from proxy.observe.fleet import SharedConnectionsStatus
from proxy.observe.metrics.exposition import MetricsPage
from proxy.observe.snapshot import take_snapshot
from proxy.telemetry.loop_lag import LoopLag
from quota.entity import ANONYMOUS, ClientQuotaEntity
from sluice_cli.root import cli, run
from tests.support.memory.fleet_reports import fleet_report
from tests.support.memory.proxy_state import FakeState, busy_state
from tests.support.memory.worker_states import FakeWorkers

ROOT = Path(__file__).parents[3]
CONFIGURATION = (ROOT / "docs/reference/configuration.md").read_text()
METRICS = (ROOT / "docs/reference/metrics.md").read_text()

SECTIONS = {
    "Top level": Config,
    "`[upstream]`": Upstream,
    "`[[listener]]`": Listener,
    "`[listener.tls]`": ListenerTls,
    "`[upstream.tls]`": UpstreamTls,
    "`[upstream.credentials]`": Credentials,
    "`[enforcement]`": Enforcement,
    "`[quotas]`": Quotas,
    "`[[group]]`": Group,
    "`[group.match]`": GroupMatch,
    "`[group.budget]`": GroupBudget,
    "`[callback]`": Callback,
    "`[fleet]`": Fleet,
    "`[quota_admin]`": QuotaAdmin,
    "`[audit]`": Audit,
    "`[admin]`": Admin,
    "`[[admin.tokens]]`": AdminToken,
    "`[admin.tls]`": AdminTls,
    "`[connections]`": Connections,
    "`[limits]`": Limits,
    "`[metering]`": Metering,
    "`[metering.upload]`": Upload,
    "`[log]`": Log,
}
NOT_ROWS = {
    "canary",
    "quota_admin",
    "audit",
    "upstream",
    "listener",
    "enforcement",
    "quotas",
    "group",
    "callback",
    "fleet",
    "admin",
    "connections",
    "limits",
    "metering",
    "log",
    "profile",
}
"""Top-level keys that are sections, and the one that is only a flag."""

EMPTY_TABLES = {"exempt", "settings", "overrides", "principal_overrides", "principal_builder_settings"}
"""Settings that are empty by default."""


def rows(document: str, heading: str) -> dict[str, list[str]]:
    """Return the table rows under `heading`: the code spans of the first column, and the other columns."""
    section = document.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found: dict[str, list[str]] = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            first, *others = (column.strip() for column in line.strip("|").split("|"))
            found |= dict.fromkeys(re.findall(r"`([^`]+)`", first), others)
    return found


@pytest.mark.parametrize("heading", SECTIONS)
def test_every_setting_is_documented_with_its_default(heading: str) -> None:
    """Each configuration key has one row, each row names a key, and the row states the default that applies."""
    fields = {
        field.encode_name: field
        for field in msgspec.structs.fields(SECTIONS[heading])
        if heading != "Top level" or field.encode_name not in NOT_ROWS
    }
    documented = rows(CONFIGURATION, heading)
    assert documented.keys() == fields.keys()
    for name, (default, *_) in documented.items():
        if not default.startswith("`"):
            assert default == "required" or fields[name].default in (None, "", ()) or name in EMPTY_TABLES, name
            continue
        written = tomllib.loads(f"x = {re.findall(r'`([^`]+)`', default)[0]}")["x"]
        expected = "" if name == "name" else written
        assert fields[name].default == expected, name


def test_every_flag_is_documented() -> None:
    """The documented flags of `run` are exactly those that the command has."""
    flags = {option for parameter in run.params if not getattr(parameter, "hidden", False) for option in parameter.opts}
    assert rows(CONFIGURATION, "Command line").keys() == flags
    assert {"run", "check-config", "demo", "meter", "quotas", "upgrade", "fleet", "top", "health", "examples"} == set(cli.commands)


def shown_families() -> Iterator[tuple[str, str, set[str]]]:
    """Yield name, type and labels of each metric family that a busy proxy exports."""
    state = busy_state()
    state.mutation.update_quota(ClientQuotaEntity(None, "etl"), 5.0)
    state.mutation.group(ANONYMOUS, "etl", state.time_ms).record(30, state.time_ms)
    state.produce.add(client_id="paced", bound=1_000.0, burst_ms=1_000)
    yield from families_of(state)


def families_of(state: FakeState) -> Iterator[tuple[str, str, set[str]]]:
    """Yield name, type and labels of each metric family of a proxy."""
    text = MetricsPage(LoopLag()).render(take_snapshot(state)).decode()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield name, family.type, {label for sample in family.samples for label in sample.labels} - {"le"}


def test_every_metric_is_documented_with_type_and_labels() -> None:
    """Each metric family has a row with its type and labels, and each row names a metric family."""
    documented = rows(METRICS, "Quotas") | rows(METRICS, "The process")
    shown = {name: (kind, labels) for name, kind, labels in shown_families()}
    assert documented.keys() == shown.keys()
    for name, (kind, labels, *_) in documented.items():
        assert (kind, set(re.findall(r"`([^`]+)`", labels))) == shown[name], name


async def test_every_metric_of_workers_is_documented() -> None:
    """Each metric family that only workers export has a row, and each such row names a family."""
    text = MetricsPage(LoopLag()).render(await FakeWorkers([busy_state()]).pages.snapshot()).decode()
    shown = {
        f"{family.name}_total" if family.type == "counter" else family.name: (family.type, {"worker"})
        for family in text_string_to_metric_families(text)
        if any("worker" in sample.labels for sample in family.samples)
    }
    documented = {name: row for name, row in rows(METRICS, "Workers").items() if name.startswith("kafka_sluice_worker_")}
    assert {name: (kind, set(re.findall(r"`([^`]+)`", labels))) for name, (kind, labels, *_) in documented.items()} == shown


def fleet_families() -> Iterator[tuple[str, str, set[str]]]:
    """Yield name, type and labels of each metric family that only members of a fleet export."""
    state = busy_state()
    state.fleet_report = fleet_report()._replace(connections=SharedConnectionsStatus(7, 90))
    known = {name for name, *_ in families_of(busy_state())}
    return (family for family in families_of(state) if family[0] not in known)


def test_every_metric_of_a_fleet_is_documented() -> None:
    """Each metric family that only members of a fleet export has a row with its type and labels, and each such row names a family."""
    documented = {name: row for name, row in rows(METRICS, "Fleet").items() if name.startswith("kafka_")}
    found = {name: (kind, set(re.findall(r"`([^`]+)`", labels))) for name, (kind, labels, *_) in documented.items()}
    assert found == {name: (kind, labels) for name, kind, labels in fleet_families()}


def test_documented_alerts_name_metrics_that_exist() -> None:
    """Every metric in a documented alert exists."""
    alerts = METRICS.split("## Alerts worth having")[1]
    assert set(re.findall(r"kafka_\w+", alerts)) <= {name for name, *_ in (*shown_families(), *fleet_families())}


def test_documented_sizes_are_sizes() -> None:
    """Sluice reads every form of a size that the configuration page shows."""
    (line,) = [line for line in CONFIGURATION.splitlines() if line.startswith("* **Sizes**")]
    written = re.findall(r"`([^`]+)`", line.split(". `kB`")[0])
    assert [read_size(tomllib.loads(f"x = {text}")["x"]) for text in written] == [1_048_576, 1_048_576, 1_048_576, 10_000_000, 1_536]
