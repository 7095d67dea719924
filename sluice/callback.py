"""Everything that a custom quota callback needs: `from sluice.callback import ClientQuotaCallback`."""

from quota.callbacks.callback import ClientQuotaCallback
from quota.callbacks.cluster import Cluster, PartitionInfo
from quota.entity import DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType, ConfigEntityType, EntityPart, KafkaPrincipal

__all__ = [
    "DEFAULT",
    "UNLIMITED",
    "ClientQuotaCallback",
    "ClientQuotaEntity",
    "ClientQuotaType",
    "Cluster",
    "ConfigEntityType",
    "EntityPart",
    "KafkaPrincipal",
    "PartitionInfo",
]
