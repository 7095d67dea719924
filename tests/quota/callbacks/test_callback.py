"""Kafka's default callback has eight levels of precedence and a static default below them."""

import pytest

from quota.callbacks.callback import DefaultQuotaCallback
from quota.entity import DEFAULT, ClientQuotaEntity, ClientQuotaType, KafkaPrincipal

PRODUCE = ClientQuotaType.PRODUCE
ALICE = KafkaPrincipal("User", "alice")
PRECEDENCE = [
    ClientQuotaEntity("alice", "etl"),
    ClientQuotaEntity("alice", DEFAULT),
    ClientQuotaEntity("alice"),
    ClientQuotaEntity(DEFAULT, "etl"),
    ClientQuotaEntity(DEFAULT, DEFAULT),
    ClientQuotaEntity(DEFAULT),
    ClientQuotaEntity(client_id="etl"),
    ClientQuotaEntity(client_id=DEFAULT),
]
SHARED_BY = ["alice/etl", "alice/etl", "alice/", "alice/etl", "alice/etl", "alice/", "/etl", "/etl"]


@pytest.mark.parametrize("level", range(8))
def test_the_most_specific_entity_wins(level: int) -> None:
    """The most specific entity with a quota decides on the limit and on which clients share it."""
    callback = DefaultQuotaCallback(static_default=9.0)
    for number, entity in enumerate(PRECEDENCE, 1):
        callback.update_quota(PRODUCE, entity, float(number))
    for entity in PRECEDENCE[:level]:
        callback.remove_quota(PRODUCE, entity)
    tags = callback.quota_metric_tags(PRODUCE, ALICE, "etl")
    assert f"{tags['user']}/{tags['client-id']}" == SHARED_BY[level]
    assert callback.quota_limit(PRODUCE, tags) == level + 1
    assert callback.rule(tags) == (PRECEDENCE[level], level + 1)


def test_the_ninth_level() -> None:
    """Without a quota of an entity the static default limits each client-id, but not a client without one."""
    callback = DefaultQuotaCallback(static_default=9.0)
    tags = callback.quota_metric_tags(PRODUCE, ALICE, "etl")
    assert (tags, callback.quota_limit(PRODUCE, tags)) == ({"user": "", "client-id": "etl"}, 9.0)
    assert callback.rule(tags) is None
    assert callback.quota_limit(PRODUCE, callback.quota_metric_tags(PRODUCE, ALICE, "")) is None
    callback.update_quota(PRODUCE, ClientQuotaEntity("bob"), 5.0)
    assert callback.quota_limit(PRODUCE, callback.quota_metric_tags(PRODUCE, ALICE, "etl")) == 9.0
    assert callback.quota_limit(PRODUCE, callback.quota_metric_tags(PRODUCE, KafkaPrincipal("User", "bob"), "etl")) == 5.0


def test_names_in_tags() -> None:
    """A user is encoded in the tags and a client-id is not, and the quota is found by them."""
    callback = DefaultQuotaCallback()
    callback.update_quota(PRODUCE, ClientQuotaEntity("bob smith", "a b"), 7.0)
    tags = callback.quota_metric_tags(PRODUCE, KafkaPrincipal("User", "bob smith"), "a b")
    assert tags == {"user": "bob%20smith", "client-id": "a b"}
    assert callback.quota_limit(PRODUCE, tags) == 7.0
