"""Which clients are enforced, and how: the configured mode, the switches that override it, and the exempt principals."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from proxy.enforcement.mode import Enforcement, Mode
from proxy.enforcement.switches import Switches, SwitchMode
from quota.entity import KafkaPrincipal
from quota.groups.declared_groups import NO_GROUPS, DeclaredGroups, Explanation


class PolicyResult(NamedTuple):
    """The result for one client, and its reason."""

    switch: SwitchMode | None
    """The switch that applies; None: the configured mode does."""
    is_exempt: bool
    groups: Explanation


class Policy:
    """Shared and mutable. It is called once per client and generation, never per request.

    Attributes:
        groups: the declared groups; evaluated once per client and origin.
        base: the configured enforcement, for clients without a switch.
        generation: increases with each change, so that cached results are looked up again.
    """

    __slots__ = ("_acting", "_exempt", "_observing", "_switches", "base", "generation", "groups")

    def __init__(self, base: Enforcement) -> None:
        self.base = base
        self.generation = 0
        self._acting = Enforcement(Mode.DELAY)  # for clients that are enforced by a switch although the configuration only observes
        self._observing = Enforcement(Mode.OBSERVE)
        self._switches = Switches()
        self._exempt: frozenset[str] = frozenset()
        self.groups = NO_GROUPS

    @property
    def switches(self) -> Switches:
        """The current switches."""
        return self._switches

    @property
    def exempt(self) -> Collection[str]:
        """Principals without quotas, such as `User:ops`."""
        return self._exempt

    def switch(self, switches: Switches) -> bool:
        """Use these switches; False: they are equal to the current ones."""
        if switches == self._switches:
            return False
        self._switches = switches
        self.generation += 1
        return True

    def configured(self, exempt: Collection[str], groups: DeclaredGroups = NO_GROUPS) -> None:
        """Apply a configuration: `base` may have changed; only these principals are exempt, and only these groups are declared."""
        self._exempt = frozenset(exempt)
        self.groups = groups
        self.generation += 1

    def is_exempt(self, principal: KafkaPrincipal) -> bool:
        """Whether no quota applies to a principal, whatever the switches are."""
        return bool(self._exempt) and str(principal) in self._exempt

    def of_client(self, listener: str, principal: KafkaPrincipal, client_id: str) -> Enforcement | None:
        """Return how verdicts on a client's bytes, time and mutations are enforced; None: they are not recorded."""
        if self.is_exempt(principal):
            return None
        return self._carried_out(self._switches.of_client(listener, principal.name, client_id))

    def of_listener(self, listener: str) -> Enforcement | None:
        """Return how the rates of a listener, and of the process for its connections, are enforced; None: they are not counted."""
        return self._carried_out(self._switches.of_listener(listener))

    def of_address(self, listener: str, address: str) -> Enforcement | None:
        """Return how rate and number of an address's connections are enforced; None: the rate is not counted, the number not limited."""
        return self._carried_out(self._switches.of_address(listener, address))

    def policy_result(self, principal: KafkaPrincipal, client_id: str, listener: str, address: str) -> PolicyResult:
        """Return what applies to a client of a listener and address; for operators, not for requests."""
        switch = self._switches.of_client(listener, principal.name, client_id)
        return PolicyResult(switch, self.is_exempt(principal), self.groups.explain(listener, address, principal.name, client_id))

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
