"""Quotas of request time whose groups change between a window and a schedule at run time."""

from __future__ import annotations

from proxy.enforcement.groups.enforced_groups import EnforcedGroup
from proxy.enforcement.paced.manager import PaceableManager
from quota.request_time import ClientRequestQuotaManager


class PaceableRequestManager(ClientRequestQuotaManager[EnforcedGroup], PaceableManager):
    """The manager of request time. `make` decides which of its groups are paced."""
