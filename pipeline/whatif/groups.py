"""The recorded groups of a run, and the groups that another quota file would give the same clients."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from pipeline.errors import BadInputError
from pipeline.file_set import FileSet
from pipeline.quotas.file import QuotaFile
from quota.entity import UNLIMITED, ClientQuotaType, KafkaPrincipal, desanitize
from quota.errors import SanitizedNameError
from quota.names import read_kept_name
from quota.throttle import INT32_MAX

CONNECTION: Final = "Connection"
OPEN: Final = "open"
REGROUP: Final = "regroup"
ANONYMOUS: Final = "ANONYMOUS"
FORGOTTEN: Final = "__forgotten__"
"""Stands for all users with names that were erased from the files; each of them had sensors of its own."""


class Group(msgspec.Struct, frozen=True):
    """The identity of a group in every run. Users are percent-encoded as in Kafka's tags."""

    proxy_id: str
    quota_type: str
    scope: str
    node: str
    listener: str
    user: str
    client_id: str
    ip: str
    tags: str

    def named(self, user: str, client_id: str) -> "Group":
        """Return the group with the same place and other clients."""
        return msgspec.structs.replace(self, user=user, client_id=client_id)


class Sensor(msgspec.Struct, frozen=True):
    """A sensor of one run: its group and its parameters."""

    ref: int
    group: Group
    num_samples: int
    window_ms: int
    cap_ms: int | None


class GroupAssignment(msgspec.Struct, frozen=True):
    """The group of a recorded sensor's events under another quota file.

    Attributes:
        bound: bound of the new group; None when it stays as recorded, since a quota file has no limit of listeners or of the process.
        is_certain: False when the file would split the group's clients, and the record cannot separate them.
        is_apart: the sensor stays separate from other sensors with the same group.
        moves: mode `open` only: some clients would be in another group with another bound.
    """

    ref: int
    group: Group
    bound: float | None
    is_certain: bool
    is_apart: bool = False
    moves: bool = False


def sensors_of(file_sets: Iterable[FileSet]) -> dict[int, Sensor]:
    """Return the sensors and token buckets of one run by group number.

    Raises:
        BadInputError: names are not plain, so they do not match a quota file.
    """
    sensors: dict[int, Sensor] = {}
    for file_set in file_sets:
        if file_set.manifest.names != "plain":
            raise BadInputError(
                f"{file_set.manifest.file_set}: names are {file_set.manifest.names}, so a quota file cannot be applied;"
                " meter with plain names"
            )
        for row in file_set.read("dim_group").to_pylist():
            if row["group_ref"] not in sensors:
                sensors[row["group_ref"]] = Sensor(row["group_ref"], _group(row), row["num_samples"], row["window_ms"], row["cap_ms"])
    return sensors


def _group(row: Mapping[str, object]) -> Group:
    node = row["node"] if row["node"] is not None else row["node_id"]
    texts = [str(row[name] or "") for name in ("listener", "tag_user", "tag_client_id", "tag_ip", "tags")]
    return Group(str(row["proxy_id"]), str(row["quota_type"]), str(row["scope"]), "" if node is None else str(node), *texts)


def clients_of(file_sets: Iterable[FileSet]) -> set[tuple[str, str]]:
    """Return the (user, client-id) pairs of a run."""
    pairs: set[tuple[str, str]] = set()
    for file_set in file_sets:
        table = file_set.read("dim_client", columns=["principal", "client_id"])
        pairs |= set(zip(table.column("principal").to_pylist(), table.column("client_id").to_pylist(), strict=True))
    return pairs


def place(sensors: Iterable[Sensor], clients: set[tuple[str, str]], quotas: QuotaFile, mode: str) -> list[GroupAssignment]:
    """Return the new group of every sensor under a quota file. In mode `open` sensors keep their groups."""
    users, client_ids = _by_part(clients)
    placed = []
    for sensor in sensors:
        group = sensor.group
        if group.quota_type == CONNECTION:
            bound = quotas.connection_bound(group.ip) if group.ip else None
            placed.append(GroupAssignment(sensor.ref, group, bound, is_certain=True, is_apart=bound is None))
        elif group.tags:  # groups of a custom callback, which has its own limits
            placed.append(GroupAssignment(sensor.ref, group, None, is_certain=True, is_apart=True))
        else:
            there = _new_tags(group, users, client_ids, quotas)
            placed.append(_stays(sensor, there, quotas) if mode == OPEN else _goes(sensor, there, quotas))
    return placed


def _stays(sensor: Sensor, there: set[tuple[str, str]], quotas: QuotaFile) -> GroupAssignment:
    group = sensor.group
    bound = quotas.bound(group.quota_type, group.user, group.client_id)
    moves = any(quotas.bound(group.quota_type, *tags) != bound for tags in there)
    return GroupAssignment(sensor.ref, group, bound, is_certain=True, is_apart=True, moves=moves)


def _goes(sensor: Sensor, there: set[tuple[str, str]], quotas: QuotaFile) -> GroupAssignment:
    group = sensor.group
    certain = len(there) == 1
    user, client_id = next(iter(there)) if certain else (group.user, group.client_id)
    bound = quotas.bound(group.quota_type, user, client_id)
    return GroupAssignment(sensor.ref, group.named(user, client_id), bound, certain, is_apart=group.user == FORGOTTEN)


def _by_part(clients: set[tuple[str, str]]) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return the client-ids of each user, and the users of each client-id."""
    users: dict[str, set[str]] = {}
    client_ids: dict[str, set[str]] = {}
    for user, client_id in clients:
        users.setdefault(user, set()).add(client_id)
        client_ids.setdefault(client_id, set()).add(user)
    return users, client_ids


def _new_tags(group: Group, users: Mapping[str, set[str]], client_ids: Mapping[str, set[str]], quotas: QuotaFile) -> set[tuple[str, str]]:
    """Return the tags that the members of a group would get. Several tags mean that the group would be split."""
    user = plain_user(group.user)
    if group.user and group.client_id:
        members = {(user, group.client_id)}
    elif group.user:
        members = {(user, client_id) for client_id in users.get(user, {""})}
    else:
        members = {(its, group.client_id) for its in client_ids.get(group.client_id, {ANONYMOUS})}
    callback, quota_type = quotas.callbacks[group.quota_type], ClientQuotaType(group.quota_type)
    tags = [
        callback.quota_metric_tags(quota_type, KafkaPrincipal("User", read_kept_name(name)), read_kept_name(client_id))
        for name, client_id in members
    ]
    return {(its["user"], its["client-id"]) for its in tags}


def plain_user(user: str) -> str:
    """Return the decoded name of a user from the tag."""
    try:
        return desanitize(user)
    except SanitizedNameError:
        return user


def is_limited(bound: float | None, quota_type: str) -> bool:
    """Return whether a bound is a limit. Connection rates are 32-bit numbers, the largest of which means no limit."""
    return bound is not None and bound < (INT32_MAX if quota_type == CONNECTION else UNLIMITED)


def display_name(group: Group) -> str:
    """Return a group's name for people."""
    parts = [f"user {plain_user(group.user)}" if group.user else "", f"client-id {group.client_id}" if group.client_id else ""]
    parts += [f"ip {group.ip}" if group.ip else "", group.tags]
    return ", ".join(part for part in parts if part) or f"{group.scope} {group.listener or group.node}".strip()
