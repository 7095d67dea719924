"""Creates the store that the configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.base.clock import now_ms, wall_time_s
from proxy.config.kafka_client import kafka_client_settings
from proxy.config.model import Config, Quotas
from proxy.config.problem import CONFIGURATION, ConfigProblems, Problem
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.stores import read_zookeeper_auth
from proxy.quota_store.file.store import FileStore
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import OnContent, QuotaStore

if TYPE_CHECKING:
    from proxy.quota_store.zookeeper.access import Access

_OF_STORE: Final = ("store", "path", "connect", "auth_file", "auth_scheme", "tls", "topic", "replication_factor", "create", "snapshot")


def make_store(config: Config, on_content: OnContent, *, altering: bool) -> QuotaStore:
    """Return the store of a configuration, not started.

    Args:
        config: names the store in `[quotas]`, and the brokers.
        on_content: called with each new content.
        altering: whether clients may alter quotas through Sluice.

    Raises:
        ConfigProblems: a secret cannot be read any more.
    """
    quotas = config.quotas
    if quotas.store == "zookeeper":
        return _zookeeper(quotas, on_content)
    if quotas.store == "topic":
        return _topic(config, on_content)
    if quotas.path is None:
        return MemoryStore(on_content, now_ms=now_ms, wall_time_s=wall_time_s)
    any_sign = quotas.profile == "zookeeper"
    return FileStore(quotas.path, on_content, now_ms=now_ms, wall_time_s=wall_time_s, any_sign=any_sign, altering=altering)


def _zookeeper(quotas: Quotas, on_content: OnContent) -> QuotaStore:
    from proxy.quota_store.zookeeper.store import ZookeeperStore  # imported here: without ZooKeeper its client is not loaded

    assert quotas.connect is not None
    try:
        access = _access(quotas)
    except CredentialsError as error:
        raise ConfigProblems([Problem(CONFIGURATION, f"quotas.{error.key}", error.problem, error.remedy)]) from None
    return ZookeeperStore(
        quotas.connect,
        on_content,
        now_ms=now_ms,
        wall_time_s=wall_time_s,
        access=access,
        creates=quotas.create,
        snapshot=None if quotas.snapshot is None else Snapshot(quotas.snapshot),
    )


def _access(quotas: Quotas) -> Access:
    """Return TLS settings and credentials for ZooKeeper.

    Raises:
        CredentialsError: a secret cannot be read.
    """
    from proxy.quota_store.zookeeper.access import Access  # imported here, as above

    tls = quotas.tls
    access = Access() if tls is None else Access(lambda: tls.context_of(tls.files()), tls.server_name)
    if quotas.auth_file is None:
        return access
    auth = read_zookeeper_auth(quotas.auth_file)
    if quotas.auth_scheme == "digest":
        return access._replace(digest=auth)
    user, _, password = auth.partition(":")
    return access._replace(login=(user, password))


def _topic(config: Config, on_content: OnContent) -> QuotaStore:
    from proxy.quota_store.topic.store import TopicStore  # imported here: without a topic its client is not needed

    quotas = config.quotas
    assert quotas.topic is not None
    return TopicStore(
        lambda: kafka_client_settings(config.upstream),
        quotas.topic,
        on_content,
        now_ms=now_ms,
        wall_time_s=wall_time_s,
        create=quotas.create,
        replication_factor=quotas.replication_factor,
        snapshot=None if quotas.snapshot is None else Snapshot(quotas.snapshot),
    )


def other_store(old: Config, new: Config) -> bool:
    """Whether two configurations name different stores."""
    return any(getattr(old.quotas, name) != getattr(new.quotas, name) for name in _OF_STORE)
