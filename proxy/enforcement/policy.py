"""Who is enforced, and how: the mode of the configuration, the switches over it, and who is exempt from all quotas."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from proxy.enforcement.mode import Enforcement, Mode
from proxy.enforcement.switches import Switches, SwitchMode
from quota.entity import KafkaPrincipal
from quota.groups.declared_groups import NO_GROUPS, DeclaredGroups, Explanation


class Standing(NamedTuple):
    """What is made of a client, and why."""

    switch: SwitchMode | None
    """The one that holds for it; None: the configuration's mode does."""
    is_exempt: bool
    groups: Explanation


class Policy:
    """Shared and mutable. What it says is asked once per client and generation, never per request.

    Attributes:
        groups: those that the operator declares; who comes in asks them once where that is.
        base: what the configuration says: the enforcement of clients without a switch.
        generation: grows with each change; who remembers an answer asks again.
    """

    __slots__ = ("_acting", "_exempt", "_observing", "_switches", "base", "generation", "groups")

    def __init__(self, base: Enforcement) -> None:
        self.base = base
        self.generation = 0
        self._acting = Enforcement(Mode.DELAY)  # of who is enforced although the configuration only observes
        self._observing = Enforcement(Mode.OBSERVE)
        self._switches = Switches()
        self._exempt: frozenset[str] = frozenset()
        self.groups = NO_GROUPS

    @property
    def switches(self) -> Switches:
        """Those in force."""
        return self._switches

    @property
    def exempt(self) -> Collection[str]:
        """Principals that no quota applies to, such as `User:ops`."""
        return self._exempt

    def switch(self, switches: Switches) -> bool:
        """Put switches in force; False: they were already."""
        if switches == self._switches:
            return False
        self._switches = switches
        self.generation += 1
        return True

    def configured(self, exempt: Collection[str], groups: DeclaredGroups = NO_GROUPS) -> None:
        """The configuration was read: `base` may be another; these principals are exempt, and these groups are declared, and no others."""
        self._exempt = frozenset(exempt)
        self.groups = groups
        self.generation += 1

    def is_exempt(self, principal: KafkaPrincipal) -> bool:
        """Whether no quota applies to a principal, whatever the switches say."""
        return bool(self._exempt) and str(principal) in self._exempt

    def of_client(self, listener: str, principal: KafkaPrincipal, client_id: str) -> Enforcement | None:
        """Return how verdicts on a client's bytes, time and mutations are carried out; None: nothing of it is recorded."""
        if self.is_exempt(principal):
            return None
        return self._carried_out(self._switches.of_client(listener, principal.name, client_id))

    def of_listener(self, listener: str) -> Enforcement | None:
        """Return how the rates of a listener, and of the process on its connections, are carried out; None: they count nothing."""
        return self._carried_out(self._switches.of_listener(listener))

    def of_address(self, listener: str, address: str) -> Enforcement | None:
        """Return how rate and number of an address's connections are carried out; None: the rate counts nothing, no number is too high."""
        return self._carried_out(self._switches.of_address(listener, address))

    def standing(self, principal: KafkaPrincipal, client_id: str, listener: str, address: str) -> Standing:
        """Return what holds for a client that comes in at a listener, from an address: what operators ask for, not requests."""
        switch = self._switches.of_client(listener, principal.name, client_id)
        return Standing(switch, self.is_exempt(principal), self.groups.explain(listener, address, principal.name, client_id))

    def _carried_out(self, mode: SwitchMode | None) -> Enforcement | None:
        if mode is None:
            return self.base
        if mode is SwitchMode.OFF:
            return None
        if mode is SwitchMode.OBSERVE:
            return self._observing
        if self.base.mode is not Mode.OBSERVE:
            return self.base
        self._acting.delay_max_ms = self.base.delay_max_ms
        return self._acting
