"""Which settings of `[quotas]` belong to which store, and what is wrong with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from proxy.config_read import Place
from proxy.config_upstream import beside
from proxy.host_port import read_host_port
from proxy.tls.credentials import CredentialsError, read_secret
from proxy.units import shown

if TYPE_CHECKING:
    from proxy.config import Config, Quotas

CONNECT_REMEDY: Final = 'addresses of ZooKeeper such as "zk-1:2181,zk-2:2181", followed by "/chroot" where Kafka has one'

_CHROOT: Final = re.compile(r"(/[A-Za-z0-9._-]+)+")
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
_PATHS: Final = ("auth_file", "snapshot")


def read_connect(value: object) -> str:
    """Return where ZooKeeper is: HOST:PORT[,HOST:PORT...][/CHROOT], as brokers have it in zookeeper.connect."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a text")
    hosts, slash, chroot = value.partition("/")
    for host in hosts.split(","):
        read_host_port(host)
    if slash and (_CHROOT.fullmatch(slash + chroot) is None or {".", ".."} & set(chroot.split("/"))):
        raise ValueError(f"{shown(slash + chroot)} is not a path of ZooKeeper")
    return value


def check_stores(quotas: Quotas, place: Place) -> None:
    """Report what a store needs and has not, and what no store of this kind looks at."""
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
    """Report a login at ZooKeeper that cannot be had."""
    path = config.quotas.auth_file
    if path is None:
        return
    try:
        read_zookeeper_auth(path)
    except CredentialsError as error:
        place.add(f"quotas.{error.key}", error.problem, error.remedy)


def read_zookeeper_auth(path: Path) -> str:
    """Return `user:password` of ZooKeeper's digest scheme, from a file that nobody else may read.

    Raises:
        CredentialsError: it cannot be had; nothing of it is in the text.
    """
    secret = read_secret("auth_file", path)
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not all(text.partition(":")[::2]) or "\n" in text:
        raise CredentialsError("auth_file", f"{path} does not hold user:password", "write these, and nothing else, into it")
    return text


def stores_beside(config: Config, folder: Path) -> Config:
    """Paths in a file begin where the file lies."""
    quotas = config.quotas
    paths: dict[str, Any] = {name: folder / path for name in _PATHS if isinstance(path := getattr(quotas, name), Path)}
    paths["tls"] = beside(quotas.tls, folder)
    return msgspec.structs.replace(config, quotas=msgspec.structs.replace(quotas, **paths))
