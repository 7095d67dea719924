"""Which store a configuration asks for."""

from __future__ import annotations

from typing import Final

from proxy.clock import now_ms, wall_time_s
from proxy.config import Config, Quotas
from proxy.config_problem import ConfigProblems, Problem
from proxy.config_stores import read_zookeeper_auth
from proxy.quota_store.file import FileStore
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.snapshot import Snapshot
from proxy.quota_store.store import OnContent, QuotaStore
from proxy.tls.credentials import CredentialsError

_OF_STORE: Final = ("store", "path", "connect", "auth_file", "topic", "replication_factor", "create", "snapshot")


def make_store(config: Config, on_content: OnContent, *, altering: bool) -> QuotaStore:
    """Return the store of a configuration, not started.

    Args:
        config: says which, in `[quotas]`, and how brokers are reached.
        on_content: told of each new content.
        altering: somebody may alter quotas through Sluice.

    Raises:
        ConfigProblems: a secret cannot be had any more.
    """
    quotas = config.quotas
    if quotas.store == "zookeeper":
        return _zookeeper(quotas, on_content)
    if quotas.store == "topic":
        raise ConfigProblems([Problem("sluice.toml", "quotas.store", '"topic" is not part of this version')])
    if quotas.path is None:
        return MemoryStore(on_content, now_ms=now_ms, wall_time_s=wall_time_s)
    any_sign = quotas.profile == "zookeeper"
    return FileStore(quotas.path, on_content, now_ms=now_ms, wall_time_s=wall_time_s, any_sign=any_sign, altering=altering)


def _zookeeper(quotas: Quotas, on_content: OnContent) -> QuotaStore:
    from proxy.quota_store.zookeeper import ZookeeperStore  # only here: who has no ZooKeeper does not load its client

    assert quotas.connect is not None
    try:
        auth = None if quotas.auth_file is None else read_zookeeper_auth(quotas.auth_file)
    except CredentialsError as error:
        raise ConfigProblems([Problem("sluice.toml", f"quotas.{error.key}", error.problem, error.remedy)]) from None
    return ZookeeperStore(
        quotas.connect,
        on_content,
        now_ms=now_ms,
        wall_time_s=wall_time_s,
        auth=auth,
        creates=quotas.create,
        snapshot=None if quotas.snapshot is None else Snapshot(quotas.snapshot),
    )


def other_store(old: Config, new: Config) -> bool:
    """Whether two configurations name different stores."""
    return any(getattr(old.quotas, name) != getattr(new.quotas, name) for name in _OF_STORE)
