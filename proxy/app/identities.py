"""Builds the rules that identify clients from the settings of listeners; failures are counted and logged."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.config.model import Listener
from proxy.config.problem import CONFIGURATION, ConfigProblems, Problem
from proxy.session.login.identity import IdentityRules, Peer
from proxy.telemetry import log
from proxy.telemetry.counters import Counters
from sluice.principal import PrincipalBuilder


def identities_of(
    listeners: Iterable[Listener], counters: Counters, on_login_failed: Callable[[Peer], None] | None = None
) -> dict[str, IdentityRules]:
    """Return the rules of each listener, by its name.

    Raises:
        ConfigProblems: a principal builder cannot be created.
    """
    watch = _Watch(counters, on_login_failed)
    return {listener.name: _rules_of(listener, watch) for listener in listeners}


def _rules_of(listener: Listener, watch: _Watch) -> IdentityRules:
    builder = None
    if listener.principal_builder is not None:
        builder = make_builder(listener.principal_builder, listener.principal_builder_settings, CONFIGURATION)
    return IdentityRules(
        listener.name,
        requires_login=listener.requires_login,
        claim=listener.oauthbearer_sub_claim,
        mechanisms=None if listener.sasl_mechanisms is None else frozenset(listener.sasl_mechanisms),
        rejects_unknown=listener.unknown_principal == "reject",
        builder=builder,
        on_fault=watch.fault,
        on_plain_exposed=None if listener.insecure_plain else watch.plain_exposed,
        on_login_failed=watch.on_login_failed,
    )


def make_builder(class_name: str, settings: Mapping[str, Any], file: str) -> PrincipalBuilder:
    """Return a configured object of the operator's class; importing it runs its module.

    Raises:
        ConfigProblems: it cannot be imported, is not a principal builder, or refuses its settings.
    """
    module_name, _, path = class_name.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001 - the operator's module may raise anything
        message = f'"{class_name}" cannot be imported: {type(error).__name__}: {error}'
        _refuse(file, message, "name a class that Python finds, see PYTHONPATH", error)
    if not isinstance(found, type) or not callable(getattr(found, "build", None)) or not callable(getattr(found, "configure", None)):
        _refuse(file, f'"{class_name}" is not a principal builder', "derive it from sluice.principal.PrincipalBuilder", None)
    try:
        builder: PrincipalBuilder = found()
        builder.configure(settings)
    except Exception as error:  # noqa: BLE001 - as above
        message = f'"{class_name}" rejects its settings: {type(error).__name__}: {error}'
        _refuse(file, message, "write the settings that the class expects", error)
    return builder


def _refuse(file: str, message: str, remedy: str, cause: Exception | None) -> None:
    raise ConfigProblems([Problem(file, "listener.principal_builder", message, remedy)]) from cause


class _Watch:
    """Counts and logs faults of principal builders and passwords without TLS."""

    def __init__(self, counters: Counters, on_login_failed: Callable[[Peer], None] | None) -> None:
        self._counters = counters
        self.on_login_failed = on_login_failed
        self._warned: set[str] = set()

    def fault(self, listener: str, error: Exception) -> None:
        """A principal builder failed: the principal is unknown."""
        self._counters.principal_builder_faults += 1
        log.warning(
            "principal_builder_fault", limit_key=f"principal_builder_fault {listener}", listener=listener, problem=type(error).__name__
        )

    def plain_exposed(self, listener: str, peer: Peer) -> None:
        """A password crosses a network unencrypted."""
        self._counters.plain_exposed += 1
        if listener not in self._warned:
            self._warned.add(listener)
            log.warning("plain_without_tls", listener=listener, peer=f"{peer[0]}:{peer[1]}")
