"""A role with its clients, one at each proxy that it uses, and what Sluice says about them."""

from collections.abc import Sequence
from typing import NamedTuple

from proxy.demo.children import ClientChild
from proxy.demo.clients.cast import Role
from proxy.demo.clients.visitors import VISITORS_ADDRESS
from proxy.demo.judgement.judgement import Judgement, judge, measured
from proxy.demo.judgement.watcher import GroupSeen, Watcher
from proxy.demo.series import Series


class Tenant(NamedTuple):
    """A role with its clients.

    Attributes:
        role: the role.
        places: numbers of the proxies that it uses, from 0 on.
        clients: the client at each of them.
        watchers: the watcher of each of them.
    """

    role: Role
    places: Sequence[int]
    clients: Sequence[ClientChild]
    watchers: Sequence[Watcher]

    @property
    def where(self) -> list[str]:
        """Name of the proxy that it uses, if it is one."""
        return [f"at proxy {self.places[0] + 1}"] if len(self.places) == 1 else []

    def group(self) -> GroupSeen:
        """Return the figures of all proxies as one group."""
        return GroupSeen.sum_of(self._groups())

    def measured(self) -> Series:
        """Return the amounts of all proxies over time."""
        return measured(self.role, self._counted(), self.group())

    def parts(self) -> list[Series]:
        """Return the amounts at each proxy over time; empty: there is one proxy."""
        if len(self.clients) == 1:
            return []
        return [measured(self.role, client.series, group) for client, group in zip(self.clients, self._groups(), strict=True)]

    def judge(self, seconds: int) -> Judgement:
        """Evaluate a run."""
        amounts = [max(part.total, group.recorded) for part, group in zip(self.parts(), self._groups(), strict=False)]
        return judge(self.role, self._counted(), self.group(), seconds, amounts)

    def _counted(self) -> Series:
        return Series.sum_of([client.series for client in self.clients])

    def _groups(self) -> list[GroupSeen]:
        name = VISITORS_ADDRESS if self.role.quota_type == "Connection" else self.role.name
        return [watcher.of(name, self.role.quota_type) for watcher in self.watchers]
