"""`[fleet]`: proxies that share every budget, and the secret that they have in common."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import Annotated, Final

import msgspec

from proxy.base.units import SIZE_REMEDY, read_size
from proxy.config.sections.credentials import CredentialsError, read_secret
from proxy.config.toml_reader import Reader
from proxy.config.values import NAME_REMEDY, TOPIC_REMEDY, read_name, read_path, read_topic

FLEET_KEY_BYTES_MIN: Final = 32
"""The length of an HMAC-SHA256; a shorter key is weaker than the hash. Source: RFC 2104, 3."""

TOPIC: Final = "__sluice_fleet"
"""The topic if the configuration names neither a topic nor a folder."""

_SECRET_FILE: Final = "secret_file"  # noqa: S105 - the name of a setting


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """Membership in a fleet: proxies with the same name and bus share every budget. The bus is a topic, or a folder of one machine."""

    name: Annotated[str, Reader(read_name, NAME_REMEDY)]
    secret_file: Annotated[Path, Reader(read_path, "the path of a file that only its owner may read")]
    """File with the key of the messages; all members have the same one."""
    topic: Annotated[str | None, Reader(read_topic, TOPIC_REMEDY)] = None
    """A topic of the upstream cluster, through which members exchange their usage. None: `TOPIC`, unless there is a folder."""
    directory: Annotated[Path | None, Reader(read_path, "the path of a folder that only its owner may access")] = None
    """A folder in the place of the topic, for members on one machine."""
    create: bool = True
    """Whether the topic is created when missing."""
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=100, description="a whole number from 1 to 100")] | None = None
    """Of the topic, when it is created. None: 3, or the number of brokers if that is lower."""
    member: Annotated[str | None, Reader(read_name, NAME_REMEDY)] = None
    """The name of this member in status and metrics. None: the name of the host."""
    publish_ms: Annotated[int, msgspec.Meta(ge=10, le=1_000, description="milliseconds from 10 to 1000")] = 50
    """The shortest time between two messages of this member."""
    connections: bool = False
    """Whether members also share the limits on connections."""
    bytes_per_second_max: Annotated[int, Reader(read_size, SIZE_REMEDY)] = 4 * 1024 * 1024
    """The most that this member publishes."""

    @property
    def topic_name(self) -> str | None:
        """The name of the topic; None: the bus is a folder."""
        return None if self.directory is not None else self.topic or TOPIC


def directory_problem(path: Path) -> tuple[str, str] | None:
    """Return why a folder cannot be the bus of a fleet, and the remedy; None: it can."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return f"{path} does not exist", f"run `mkdir -m 700 {shlex.quote(str(path))}`"
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}", "name a folder of the user that runs Sluice"
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is not a folder", "name a folder"
    if found.st_uid != os.geteuid():
        return f"{path} belongs to another user", "run all members as one user, and name a folder of this user"
    if found.st_mode & 0o077:
        return f"{path} is accessible to other users (mode {stat.S_IMODE(found.st_mode):04o})", f"run `chmod 700 {shlex.quote(str(path))}`"
    return None


def read_fleet_key(path: Path) -> bytes:
    """Return the secret of the fleet, from a file that only its owner may read.

    Raises:
        CredentialsError: the file cannot be used, or its content is shorter than `FLEET_KEY_BYTES_MIN`.
    """
    try:
        key = read_secret(_SECRET_FILE, path)
    except CredentialsError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise CredentialsError(_SECRET_FILE, error.problem, _creation_of(path)) from error
        raise
    if len(key) < FLEET_KEY_BYTES_MIN:
        raise CredentialsError(_SECRET_FILE, f"{path} contains {len(key)} bytes, fewer than {FLEET_KEY_BYTES_MIN}", _creation_of(path))
    return key


def _creation_of(path: Path) -> str:
    """Return how an operator makes the secret; with this umask no other user can read it at any time."""
    return f"run `(umask 077; head -c 32 /dev/urandom | base64 > {shlex.quote(str(path))})` once, and copy the file to every member"
