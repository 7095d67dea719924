"""Checks of quota store settings that contradict each other, and of their secrets."""

from __future__ import annotations

from typing import Final

from proxy.config.model import Config, Quotas
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.stores import CONNECT_REMEDY, read_zookeeper_auth
from proxy.config.toml_reader import Place

_NEEDED: Final = {"zookeeper": ("connect", CONNECT_REMEDY), "topic": ("topic", "the name of a compacted topic with one partition")}
_OF_STORE: Final = {
    "path": ("file",),
    "shadow": ("forward",),
    "connect": ("zookeeper",),
    "auth_file": ("zookeeper",),
    "tls": ("zookeeper",),
    "topic": ("topic",),
    "replication_factor": ("topic",),
    "create": ("zookeeper", "topic"),
    "snapshot": ("zookeeper", "topic"),
}


def check_stores(quotas: Quotas, place: Place) -> None:
    """Report settings that the store needs and that are missing, and settings that have no effect with it."""
    key, remedy = _NEEDED.get(quotas.store, (None, ""))
    if key is not None and getattr(quotas, key) is None:
        place.add(f"quotas.{key}", f'is missing with store = "{quotas.store}"', f"write {remedy}")
    for name, stores in _OF_STORE.items():
        if getattr(quotas, name) not in (None, False) and quotas.store not in stores:
            others = " or ".join(f'store = "{store}"' for store in stores)
            place.add(f"quotas.{name}", f'has no effect with store = "{quotas.store}"', f"leave it out, or write {others}")
    if quotas.auth_scheme == "sasl" and (quotas.store != "zookeeper" or quotas.auth_file is None):
        place.add("quotas.auth_scheme", "has no effect without auth_file", "name the file with user:password, or leave this out")
    if quotas.replication_factor is not None and not quotas.create:
        place.add("quotas.replication_factor", "has no effect without create", "write create = true, or leave it out")


def check_store_secrets(config: Config, place: Place) -> None:
    """Report a ZooKeeper login whose secret cannot be read."""
    path = config.quotas.auth_file
    if path is None:
        return
    try:
        read_zookeeper_auth(path)
    except CredentialsError as error:
        place.add(f"quotas.{error.key}", error.problem, error.remedy)
