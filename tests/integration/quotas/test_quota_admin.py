"""`sluice quotas` and `sluice.admin` at real brokers and through Sluice; kafka-configs sees the same quotas."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, ClientQuotaFilter, ClientQuotaFilterComponent, QuotaAdmin
from sluice.quota_targets import ClientQuotaType, QuotaLimit, UserAndClientIdQuotaTarget
from tests.integration.conftest import Route
from tests.support.kafka.java_tools import JavaTools
from tests.support.kafka.tool_calls import CONFIG_COMMAND
from tests.support.places import ROOT
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
ENTITY = ClientQuotaEntity.of({"user": "admin-test", "client-id": "c 1"})


@pytest.fixture(scope="module")
def sluice_addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Route, str], str]]:
    """Return a function that starts a Sluice before a broker, with quotas of its own or in forward mode, and returns its address."""
    forwards = tmp_path_factory.mktemp("forward") / "sluice.toml"
    forwards.write_text('[quotas]\nstore = "forward"\n')
    arguments = {"forward": ("--config", str(forwards)), "local": ("--quota-admin", "User:ANONYMOUS")}
    with contextlib.ExitStack() as stack:
        started: dict[tuple[str, str], str] = {}

        def address_of(route: Route, kind: str) -> str:
            key = (route.direct, kind)
            if key not in started:
                process = SluiceProcess(route.direct, arguments=arguments[kind], name=f"sluice-quotas-{kind}")
                started[key] = stack.enter_context(process).bootstrap
            return started[key]

        yield address_of


@pytest.fixture(params=["direct", "forward", "local"])
def address(route: Route, sluice_addresses: Callable[[Route, str], str], request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a broker or of a Sluice in front of it; all quotas are removed afterwards."""
    address = route.direct if request.param == "direct" else sluice_addresses(route, request.param)
    yield address
    with QuotaAdmin(address) as admin:
        for entity, values in admin.describe_client_quotas().items():
            if "admin-test" in entity.entries.values():
                admin.alter_client_quotas([ClientQuotaAlteration(entity, dict.fromkeys(values))])


def until_described(admin: QuotaAdmin, entity: ClientQuotaEntity, values: dict[str, float]) -> None:
    """Wait until a broker describes what its controller has accepted: with KRaft that takes a moment."""
    deadline = time.monotonic() + 20
    while (found := admin.describe_client_quotas().get(entity, {})) != values:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def sluice_quotas(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a child process."""
    command = [sys.executable, "-m", "sluice_cli", "quotas", *arguments, "--bootstrap-server", address]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


def test_quotas_are_set_described_and_deleted(address: str) -> None:
    """Quotas that the command sets are described, also after some of them are deleted, and the exit code says whether it succeeded."""
    named = ("--user", "admin-test", "--client-id", "c 1")
    done = sluice_quotas(address, "set", *named, "producer_byte_rate=1MiB", "request_percentage=12.5")
    assert (done.returncode, done.stdout) == (0, "user 'admin-test', client-id 'c 1': producer_byte_rate=1048576 request_percentage=12.5\n")
    with QuotaAdmin(address) as admin:
        until_described(admin, ENTITY, {"producer_byte_rate": 1_048_576.0, "request_percentage": 12.5})
    assert sluice_quotas(address, "delete", *named, "producer_byte_rate").stdout.endswith("'c 1': request_percentage=12.5\n")
    with QuotaAdmin(address) as admin:
        until_described(admin, ENTITY, {"request_percentage": 12.5})
    explained = sluice_quotas(address, "explain", *named).stdout
    assert "request_percentage: 12.5\n  => user 'admin-test', client-id 'c 1': 12.5\n" in explained
    assert sluice_quotas(address, "delete", *named).stdout == "user 'admin-test', client-id 'c 1': no quota\n"
    with QuotaAdmin(address) as admin:
        until_described(admin, ENTITY, {})
    again = sluice_quotas(address, "delete", *named)
    assert (again.returncode, again.stderr) == (1, "sluice quotas: user 'admin-test', client-id 'c 1' has no quota\n")


def test_targets_and_limits(address: str) -> None:
    """The calls of KIP-422 set, describe and delete the same quotas at brokers and at Sluice."""
    target = UserAndClientIdQuotaTarget("admin-test", "c 1")
    with QuotaAdmin(address) as admin:
        assert admin.set_quotas({target: QuotaLimit(ClientQuotaType.PRODUCE, 4_096)}) == {target: None}
        until_described(admin, ENTITY, {"producer_byte_rate": 4_096.0})
        assert admin.describe_quota(target) == [QuotaLimit(ClientQuotaType.PRODUCE, 4_096)]
        assert admin.delete_quotas([target]) == {target: None}
        until_described(admin, ENTITY, {})


def test_validate_only_and_refused_entities(address: str) -> None:
    """`validate_only` changes nothing; an entity that the broker refuses has an error, and the others are changed."""
    good, bad = ClientQuotaEntity.of({"user": "admin-test"}), ClientQuotaEntity.of({"user": ""})
    with QuotaAdmin(address) as admin:
        alterations = [
            ClientQuotaAlteration(good, {"consumer_byte_rate": 5_000.0}),
            ClientQuotaAlteration(bad, {"consumer_byte_rate": 1.0}),
        ]
        judged = admin.alter_client_quotas(alterations, validate_only=True)
        assert judged[good] is None
        mine = ClientQuotaFilter.contains_only([ClientQuotaFilterComponent.of_entity("user", "admin-test")])
        assert admin.describe_client_quotas(mine) == {}
        made = admin.alter_client_quotas(alterations)
        error = made[bad]
        assert made[good] is None
        assert error is not None
        assert (error.code, error.message) == (42, "Empty user not supported")
        until_described(admin, good, {"consumer_byte_rate": 5_000.0})
        assert admin.describe_client_quotas(mine) == {good: {"consumer_byte_rate": 5_000.0}}


def test_kafka_configs_sees_the_same(address: str, tools: JavaTools) -> None:
    """kafka-configs describes a quota that `sluice.admin` has set, and the other way round."""
    where = ("--bootstrap-server", address, "--entity-type", "users", "--entity-name", "admin-test")
    with QuotaAdmin(address) as admin:
        user = ClientQuotaEntity.of({"user": "admin-test"})
        admin.alter_client_quotas([ClientQuotaAlteration(user, {"producer_byte_rate": 4_096.0})])
        until_described(admin, user, {"producer_byte_rate": 4_096.0})
        assert "producer_byte_rate=4096.0" in tools.run(CONFIG_COMMAND, *where, "--describe").out
        tools.run(
            CONFIG_COMMAND, *where, "--alter", "--add-config", "controller_mutation_rate=2.5", "--delete-config", "producer_byte_rate"
        )
        until_described(admin, user, {"controller_mutation_rate": 2.5})
