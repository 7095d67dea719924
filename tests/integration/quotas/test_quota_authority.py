"""`authority = "broker"` and `store = "forward"` before a Kafka 4.3.1 with ACLs: Sluice permits a change exactly when the broker does."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from sluice.admin import ClientQuotaAlteration, ClientQuotaEntity, QuotaAdmin, QuotaAdminError
from sluice.login import Login
from tests.support.kafka.broker import KafkaCluster
from tests.support.kafka.settings import SASL_USERS
from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess

pytestmark = pytest.mark.kafka
DENIED = 31
RATE = "producer_byte_rate"
TRIES = 1_000
CLUSTER = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL)
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",  # the brokers themselves are ANONYMOUS
}
Outcome = dict[ClientQuotaEntity, tuple[int, str] | None]


@pytest.fixture(scope="module")
def locked() -> Iterator[KafkaCluster]:
    """A broker with KRaft's authorizer: alice may alter the cluster's configuration, bob has no rights."""
    with KafkaCluster(name="kafka-acl", settings=AUTHORIZER) as running:
        grant(running, "alice", AclOperation.ALTER_CONFIGS)
        with admin_as(running.sasl_bootstrap, "alice") as admin:
            until_true(lambda: codes(admin, {"user": "probe"}, validate_only=True) == {0}, "the ACL is in force")
        yield running


def grant(kafka: KafkaCluster, user: str, operation: AclOperation) -> None:
    """Give a user an ACL on the cluster."""
    binding = AclBinding(*CLUSTER, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})  # the client object must stay alive until the answers come
    for done in client.create_acls([binding]).values():
        done.result(20)


def revoke(kafka: KafkaCluster, user: str) -> None:
    """Remove all ACLs of a user."""
    wanted = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, f"User:{user}", None, AclOperation.ANY, AclPermissionType.ANY
    )
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for done in client.delete_acls([wanted]).values():
        done.result(20)


def admin_as(address: str, user: str | None) -> QuotaAdmin:
    """Log in with PLAIN; None: connect without a login."""
    return QuotaAdmin(address, login=None if user is None else Login("PLAIN", user, SASL_USERS[user]))


def altered(admin: QuotaAdmin, *changes: tuple[Mapping[str, str | None], float | None], validate_only: bool = False) -> Outcome:
    """Request changes; return code and text of each refusal."""
    wanted = [ClientQuotaAlteration(ClientQuotaEntity.of(dict(parts)), {RATE: value}) for parts, value in changes]
    made = admin.alter_client_quotas(wanted, validate_only=validate_only)
    return {entity: None if error is None else (error.code or 0, error.message) for entity, error in made.items()}


def codes(admin: QuotaAdmin, *entities: Mapping[str, str | None], validate_only: bool = False) -> set[int]:
    """Return the error codes of setting a quota for each of these entities."""
    outcome = altered(admin, *((one, 1_024.0) for one in entities), validate_only=validate_only)
    return {0 if refusal is None else refusal[0] for refusal in outcome.values()}


def state_of(sluice: SluiceProcess) -> str:
    """Return the state in /readyz."""
    return str(json.loads(sluice.get("/readyz")[1])["state"])


def kept(admin: QuotaAdmin) -> dict[ClientQuotaEntity, dict[str, float]]:
    return admin.describe_client_quotas()


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str, str, str], SluiceProcess]:
    """Return a Sluice in front of an address, with these tables."""

    def account(user: str) -> str:
        (tmp_path / user).touch(mode=0o600)
        (tmp_path / user).write_text(SASL_USERS[user])
        return f'mechanism = "PLAIN"\nusername = "{user}"\npassword_file = "{user}"\n'

    def made(address: str, tables: str, name: str) -> SluiceProcess:
        for user in SASL_USERS:
            tables = tables.replace(f"ACCOUNT {user}", account(user))
        config = tmp_path / "sluice.toml"
        config.touch(mode=0o600)
        config.write_text(tables)
        return SluiceProcess(address, arguments=("--config", str(config)), name=name)

    return made


BY_BROKER = '[quota_admin]\nauthority = "broker"\n'


def test_permissions_and_answers_equal_the_brokers(locked: KafkaCluster, start: Callable[[str, str, str], SluiceProcess]) -> None:
    """Answers equal the broker's, entity by entity; permitted changes are made in Sluice only, and a thousand requests of an unauthorised
    user change nothing.
    """
    mixed: list[tuple[Mapping[str, str | None], float | None]] = [
        ({"user": "carol"}, 1_000.0),
        ({"user": ""}, 1.0),
        ({"client-id": "etl"}, -1.0),
        ({"ip": "127.0.0.9", "user": "carol"}, 1.0),
    ]
    with start(locked.sasl_bootstrap, f"{BY_BROKER}[canary]\nACCOUNT bob\n", "sluice-by-broker") as sluice:
        until_true(lambda: sluice.metric("kafka_sluice_quota_authority_trusted") == 1.0, "the canary was refused")
        with admin_as(sluice.bootstrap, "bob") as bob, admin_as(locked.sasl_bootstrap, "bob") as direct:
            denied = altered(bob, *mixed)
            assert denied == altered(direct, *mixed)
            assert {None if one is None else one[0] for one in denied.values()} == {DENIED}
            for _ in range(TRIES):
                assert codes(bob, {"user": "carol"}, {"client-id": "etl"}) == {DENIED}
            with pytest.raises(QuotaAdminError) as caught:
                kept(bob)
            assert caught.value.code == DENIED
        with admin_as(sluice.bootstrap, "alice") as alice, admin_as(locked.sasl_bootstrap, "alice") as direct:
            assert kept(alice) == {}
            asked = altered(alice, *mixed)
            assert asked == altered(direct, *mixed, validate_only=True)
            assert sorted(0 if one is None else one[0] for one in asked.values()) == [0, 42, 42, 42]
            carol = ClientQuotaEntity.of({"user": "carol"})
            assert kept(alice) == {carol: {RATE: 1_000.0}}
            assert carol not in kept(direct)
            assert codes(alice, {"user": "alice"}, {"user": None}) == {DENIED}, "what holds for herself"
            assert kept(alice) == {carol: {RATE: 1_000.0}}
        assert sluice.metric("kafka_sluice_quota_denials_total", way="kafka") >= TRIES + 1


def test_a_canary_with_rights_denies_every_principal(locked: KafkaCluster, start: Callable[[str, str, str], SluiceProcess]) -> None:
    """When the canary account may change quotas at the broker, Sluice denies every principal, and the log says why."""
    with start(locked.sasl_bootstrap, f"{BY_BROKER}[canary]\nACCOUNT alice\n", "sluice-canary-may") as sluice:
        until_true(lambda: sluice.events("quota_authority_unproven"), "the finding")
        assert "may change quotas" in sluice.events("quota_authority_unproven")[0]["problem"]
        assert sluice.metric("kafka_sluice_quota_authority_trusted") == 0.0
        with admin_as(sluice.bootstrap, "alice") as alice, admin_as(sluice.bootstrap, "admin") as admin:
            assert codes(alice, {"user": "carol"}) == {DENIED}
            assert codes(admin, {"user": "carol"}) == {DENIED}
        assert sluice.quotas()["groups"] == []


def test_a_client_without_a_login_is_denied(locked: KafkaCluster, start: Callable[[str, str, str], SluiceProcess]) -> None:
    """A client without a login may change no quota through Sluice, although the broker permits ANONYMOUS to."""
    with start(locked.bootstrap, BY_BROKER, "sluice-anonymous") as sluice, admin_as(sluice.bootstrap, None) as nobody:
        with admin_as(locked.bootstrap, None) as direct:
            assert codes(direct, {"user": "carol"}, validate_only=True) == {0}
        assert codes(nobody, {"user": "carol"}) == {DENIED}


def test_where_brokers_keep_the_quotas_their_acls_hold(locked: KafkaCluster, start: Callable[[str, str, str], SluiceProcess]) -> None:
    """In forward mode the broker refuses changes by its ACLs, and a change that it accepts takes effect in Sluice.

    When Sluice's own account loses the right to describe quotas, the last good ones hold and /readyz names the missing right.
    """
    dave = {"user": "dave"}
    grant(locked, "bob", AclOperation.DESCRIBE_CONFIGS)
    tables = '[quotas]\nstore = "forward"\n[upstream.credentials]\nACCOUNT bob\n'
    with start(locked.sasl_bootstrap, tables, "sluice-forward-acl") as sluice, admin_as(sluice.bootstrap, "alice") as alice:
        with admin_as(sluice.bootstrap, "bob") as bob:
            assert codes(bob, dave) == {DENIED}
            assert kept(bob) == {}
        assert altered(alice, (dave, 2_048.0)) == {ClientQuotaEntity.of(dave): None}
        until_true(lambda: sluice.metric("kafka_quota_config_entries") == 1.0, "the broker's quota")
        revoke(locked, "bob")
        until_true(lambda: state_of(sluice) == "degraded", "that it may not look")
        assert "give its account DESCRIBE_CONFIGS on the cluster" in sluice.get("/readyz")[1]
        assert sluice.is_ready(), "the last good quotas hold"
        assert sluice.metric("kafka_quota_config_entries") == 1.0
        grant(locked, "bob", AclOperation.DESCRIBE_CONFIGS)
        until_true(lambda: state_of(sluice) == "ready", "that it may again")
        assert altered(alice, (dave, None)) == {ClientQuotaEntity.of(dave): None}
        until_true(lambda: sluice.metric("kafka_quota_config_entries") == 0.0, "that it is gone")
    revoke(locked, "bob")
