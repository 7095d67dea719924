"""The part of /explain from one process: the groups that a client counts for, and the clients that share them.

It is collected on the event loop's thread, since a callback may be called only there, in slices of a few connections each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from proxy.observe.rows.group_rows import Cursor, GroupRow, merged_row, order_of, row_of
from proxy.observe.snapshot import GroupView
from proxy.observe.state import DataState
from quota.entity import ANONYMOUS, ClientQuotaType, KafkaPrincipal
from quota.groups.declared_groups import Link, Member
from quota.groups.group import GroupKey, group_key
from quota.names import KeptName, kept_name

if TYPE_CHECKING:
    from proxy.observe.state import QuotaManager
    from quota.groups.group import QuotaGroup
    from quota.groups.mutation_group import MutationGroup

CLIENTS_NAMED_MAX: Final = 1_000
"""Sharers of a group that one process names to another; the others are counted."""
CONNECTIONS_EXAMINED_MAX: Final = 10_000
SLICE: Final = 200
"""Number of callback calls after which the event loop runs other tasks."""


class ClientQuestion(msgspec.Struct, frozen=True, tag=True):
    """The client of a request to /explain.

    Attributes:
        user: None: the client did not log in.
        listener, address: those of the connection, for switches and declared groups that depend on them.
    """

    user: str | None
    client_id: str | None
    listener: str
    address: str

    @property
    def principal(self) -> KafkaPrincipal:
        """The client as whom quotas know it."""
        return ANONYMOUS if self.user is None else KafkaPrincipal("User", self.user)


class SharedGroup(msgspec.Struct, frozen=True, array_like=True):
    """A live group of the client, and the clients that share it.

    Attributes:
        connections: number of connections that count for it.
        clients: number of different clients of these connections.
        named: the first of them, at most 1,000: principal, client-id and connections.
        window_ms: the time that the rate is measured over; of a token bucket the time that fills it.
    """

    row: GroupRow
    connections: int
    clients: int
    named: list[tuple[str, str, int]]
    window_ms: int


class ClientAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The answer of one process.

    Attributes:
        switch: the switch that applies to the client; None: the configured mode.
        declared_group: the client's declared group.
        chains: the groups that the client counts for, by Kafka's name of the quota type.
        callback: name of the operator's class.
    """

    switch: str | None
    is_exempt: bool
    declared_group: str | None
    chains: dict[str, list[Link]]
    callback: str | None
    groups: list[SharedGroup]


async def client_answer(state: DataState, question: ClientQuestion) -> ClientAnswer:
    """Return the answer of this process; changes no sensor."""
    client_id = question.client_id or ""
    policy_result = state.policy_result(question.principal, client_id, question.listener, question.address)
    principal = Member(question.principal, policy_result.groups.group)
    live = [one for quota_type in ClientQuotaType for one in _live(state, quota_type, principal, client_id)]
    await _find_sharers(state, live)
    return ClientAnswer(
        None if policy_result.switch is None else policy_result.switch.value,
        policy_result.is_exempt,
        policy_result.groups.group,
        {quota_type.value: list(chain) for quota_type, chain in policy_result.groups.chains.items()},
        state.callback().class_name,
        [one.shared_group(state.now_ms()) for one in live],
    )


async def group_answer(state: DataState, place: Cursor) -> SharedGroup | None:
    """Return the group at a place, with the clients that share it; None: this process has none."""
    managers = (broker.managers for broker in state.brokers() if broker.label == place.broker)
    found = [(kind, manager) for of_broker in managers for kind, manager in of_broker.items() if kind.value == place.quota_type]
    for quota_type, manager in found:
        group = manager.find(place.group) or await _with_digest(list(manager.groups()), place.group)
        if group is not None:
            live = _Live(GroupView(place.broker, place.quota_type, manager, group), quota_type)
            await _find_sharers(state, [live])
            return live.shared_group(state.now_ms())
    return None


async def _with_digest(groups: list[QuotaGroup | MutationGroup], order: GroupKey) -> QuotaGroup | MutationGroup | None:
    """Return the group with a digest instead of its tags; searched in slices."""
    for at, group in enumerate(groups if order[:1] and order[0][1:] == ("",) else ()):
        if order_of(group) == order:
            return group
        if at % SLICE == 0:
            await asyncio.sleep(0)
    return None


def merged_groups(answers: Iterable[ClientAnswer]) -> list[SharedGroup]:
    """Return the groups of all processes, equal ones as one with the sharers of all."""
    parts: dict[object, list[SharedGroup]] = {}
    for answer in answers:
        for group in answer.groups:
            parts.setdefault(group.row.place, []).append(group)
    return [merged_group(groups) for groups in parts.values()]


def merged_group(groups: list[SharedGroup]) -> SharedGroup:
    """Return the same group of several processes as one, with the sharers of all."""
    named: dict[tuple[str, str], int] = {}
    for group in groups:
        for who, client_id, count in group.named:
            named[who, client_id] = named.get((who, client_id), 0) + count
    unnamed = sum(group.clients - len(group.named) for group in groups)
    return SharedGroup(
        merged_row([group.row for group in groups]),
        sum(group.connections for group in groups),
        len(named) + unnamed,
        [(who, client_id, count) for (who, client_id), count in named.items()],
        groups[0].window_ms,
    )


class _Live:
    """A live group of the client, and the clients that share it."""

    def __init__(self, view: GroupView, quota_type: ClientQuotaType) -> None:
        self.view = view
        self._type = quota_type
        self._connections = 0
        self._clients: dict[tuple[str, str], int] = {}

    def count_if_member(self, principal: KafkaPrincipal, client_id: str) -> None:
        """Count a connection if it is in the group."""
        manager = self.view.manager
        if manager.custom_callback and isinstance(client_id, KeptName):
            return  # an operator's callback needs whole names
        if _key(manager, self._type, principal, client_id) == self.view.group.key:
            self._connections += 1
            who = (str(principal), kept_name(client_id))
            self._clients[who] = self._clients.get(who, 0) + 1

    def shared_group(self, now_ms: int) -> SharedGroup:
        """Return it as a row."""
        named = [(kept_name(who), client_id, count) for (who, client_id), count in islice(self._clients.items(), CLIENTS_NAMED_MAX)]
        return SharedGroup(row_of(self.view, now_ms), self._connections, len(self._clients), named, self.view.group.span_ms)


def _live(state: DataState, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> Iterator[_Live]:
    for broker in state.brokers():
        manager = broker.managers.get(quota_type)
        if manager is None or not manager.enabled:
            continue
        group = manager.find(_key(manager, quota_type, principal, client_id))
        if group is not None:
            yield _Live(GroupView(broker.label, quota_type.value, manager, group), quota_type)


async def _find_sharers(state: DataState, found: list[_Live]) -> None:
    asked = 0
    for principal, client_id in islice(state.clients(), CONNECTIONS_EXAMINED_MAX) if found else ():
        for live in found:
            live.count_if_member(principal, client_id)
            asked += 1
            if asked % SLICE == 0:
                await asyncio.sleep(0)


def _key(manager: QuotaManager, quota_type: ClientQuotaType, principal: KafkaPrincipal, client_id: str) -> GroupKey:
    return group_key(manager.callback.quota_metric_tags(quota_type, principal, client_id))
