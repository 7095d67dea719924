"""The name of the quota that applies to a group."""

from collections.abc import Mapping

import pytest

from proxy.enforcement.rule import group_name, rule_of
from quota.entity import DEFAULT, ClientQuotaEntity, sanitize
from quota.limits import QuotaLimits, Rule, RuleKey


def rules_of(*entities: ClientQuotaEntity) -> Mapping[RuleKey, Rule]:
    """Return the rules of a manager that has a quota for each entity."""
    return QuotaLimits.of(dict.fromkeys(entities, 1.0)).rules


PRECEDENCE = [
    (ClientQuotaEntity("a", "c"), "user=a,client-id=c"),
    (ClientQuotaEntity("a", DEFAULT), "user=a,client-id=<default>"),
    (ClientQuotaEntity(DEFAULT, "c"), "user=<default>,client-id=c"),
    (ClientQuotaEntity(DEFAULT, DEFAULT), "user=<default>,client-id=<default>"),
]


@pytest.mark.parametrize("at", range(4))
def test_the_most_specific_entity_wins(at: int) -> None:
    """Of the quotas for a user and client-id the most specific one is named."""
    assert rule_of({"user": "a", "client-id": "c"}, rules_of(*(entity for entity, _ in PRECEDENCE[at:]))) == PRECEDENCE[at][1]


@pytest.mark.parametrize(
    ("tags", "entity", "rule"),
    [
        ({"user": "a", "client-id": ""}, ClientQuotaEntity("a"), "user=a"),
        ({"user": "a", "client-id": ""}, ClientQuotaEntity(DEFAULT), "user=<default>"),
        ({"user": "", "client-id": "c"}, ClientQuotaEntity(None, "c"), "client-id=c"),
        ({"user": "", "client-id": "c"}, ClientQuotaEntity(None, DEFAULT), "client-id=<default>"),
        ({"user": sanitize("CN=a b"), "client-id": ""}, ClientQuotaEntity("CN=a b"), "user=CN=a b"),
        ({"user": "", "client-id": DEFAULT}, ClientQuotaEntity(None, DEFAULT, literal_client_id=True), "client-id=<default>"),
    ],
)
def test_one_tag(tags: dict[str, str], entity: ClientQuotaEntity, rule: str) -> None:
    """A group with one tag is matched by name, then by the default, and an encoded user is decoded."""
    assert rule_of(tags, rules_of(entity)) == rule


def test_no_entity() -> None:
    """Without a matching entity the rule is "none", "static default" or "callback"."""
    tags = {"user": "", "client-id": "c"}
    assert rule_of(tags, {}, limited=False) == "none"
    assert rule_of(tags, {}) == "static default"
    assert rule_of({"tenant": "x"}, {}, custom_callback=True) == "callback"


def test_group_names() -> None:
    """A group is named by its non-empty tags."""
    assert group_name({"user": "a", "client-id": "c"}) == "user=a,client-id=c"
    assert group_name({"user": "", "client-id": "c"}) == "client-id=c"
    assert group_name({"user": "", "client-id": ""}) == "everyone"
    assert group_name({"tenant": "x"}) == "tenant=x"
