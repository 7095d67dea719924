"""The settings of `[quotas]` that belong to each store, and their validation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from proxy.base.host_port import read_host_port
from proxy.base.units import shown
from proxy.config.sections.credentials import CredentialsError, read_secret

CONNECT_REMEDY: Final = 'addresses of ZooKeeper such as "zk-1:2181,zk-2:2181", followed by "/chroot" where Kafka has one'

_CHROOT: Final = re.compile(r"(/[A-Za-z0-9._-]+)+")


def read_connect(value: object) -> str:
    """Return the address of ZooKeeper: HOST:PORT[,HOST:PORT...][/CHROOT], as in the brokers' zookeeper.connect."""
    if not isinstance(value, str):
        raise ValueError(f"{shown(value)} is not a text")
    hosts, slash, chroot = value.partition("/")
    for host in hosts.split(","):
        read_host_port(host)
    if slash and (_CHROOT.fullmatch(slash + chroot) is None or {".", ".."} & set(chroot.split("/"))):
        raise ValueError(f"{shown(slash + chroot)} is not a path of ZooKeeper")
    return value


def read_zookeeper_auth(path: Path) -> str:
    """Return `user:password` of ZooKeeper's digest scheme, from a file that only its owner may read.

    Raises:
        CredentialsError: the file cannot be used; the text contains nothing of it.
    """
    secret = read_secret("auth_file", path)
    try:
        text = secret.decode("utf-8")
    except UnicodeDecodeError:
        text = ""
    if not all(text.partition(":")[::2]) or "\n" in text:
        raise CredentialsError("auth_file", f"{path} does not contain user:password", "write these, and nothing else, into it")
    return text
