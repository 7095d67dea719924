"""Which store a configuration asks for."""

from proxy.clock import now_ms, wall_time_s
from proxy.config import Quotas
from proxy.quota_store.file import FileStore
from proxy.quota_store.memory import MemoryStore
from proxy.quota_store.store import OnContent, QuotaStore


def make_store(quotas: Quotas, on_content: OnContent, *, altering: bool) -> QuotaStore:
    """Return the store of a configuration, not started.

    Args:
        quotas: the configuration's `[quotas]`.
        on_content: told of each new content.
        altering: somebody may alter quotas through Sluice.
    """
    if quotas.path is None:
        return MemoryStore(on_content, now_ms=now_ms, wall_time_s=wall_time_s)
    return FileStore(quotas.path, on_content, now_ms=now_ms, wall_time_s=wall_time_s, altering=altering)


def other_store(old: Quotas, new: Quotas) -> bool:
    """Whether two configurations name different stores."""
    return (old.store, old.path) != (new.store, new.path)
