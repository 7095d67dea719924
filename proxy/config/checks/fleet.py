"""Checks of fleet settings that contradict others, and of the secret."""

from __future__ import annotations

from typing import Any

from proxy.config.model import Config, Enforcement
from proxy.config.sections.credentials import CredentialsError
from proxy.config.sections.fleet import Fleet, directory_problem, read_fleet_key
from proxy.config.sections.upstream import MAIN, Upstream
from proxy.config.toml_reader import Place


def check_fleet(values: dict[str, Any], place: Place) -> None:
    """Report contradictions in `values`, fields of Config."""
    fleet = values.get("fleet")
    if fleet is None:
        return
    if fleet.directory is None:
        _check_topic(fleet, values, place)
    else:
        _check_directory(fleet, place)
    _check_sidecar(values, place)
    upstream = values.get("upstream")
    if upstream is not None and fleet.directory is None:
        _check_login(upstream, place)


def _check_directory(fleet: Fleet, place: Place) -> None:
    """Report settings of a topic beside a folder."""
    if fleet.topic is not None:
        place.add("fleet.topic", "is set beside directory, and a fleet has one bus", "leave one of the two out")
    if not fleet.create:
        place.add("fleet.create", "has no effect with directory", "leave it out")
    if fleet.replication_factor is not None:
        place.add("fleet.replication_factor", "has no effect with directory", "leave it out")


def _check_topic(fleet: Fleet, values: dict[str, Any], place: Place) -> None:
    if fleet.replication_factor is not None and not fleet.create:
        place.add("fleet.replication_factor", "has no effect without create", "write create = true, or leave it out")
    for section in ("quotas", "metering"):
        other = values.get(section)
        if other is not None and other.topic == fleet.topic_name:
            place.add("fleet.topic", f'"{fleet.topic_name}" is {section}.topic too', "write another name")


def _check_sidecar(values: dict[str, Any], place: Place) -> None:
    """Report a sidecar with budgets for each broker: members identify a broker by its node id, which a sidecar never learns."""
    enforcement = values.get("enforcement", Enforcement())
    if values.get("sidecar") and enforcement is not None and enforcement.scope == "broker":
        place.add(
            "fleet",
            'cannot share the budgets of a broker (scope = "broker") in a sidecar, which does not know the node id of its broker',
            'write enforcement.scope = "cluster", or leave out [fleet]',
        )


def _check_login(upstream: Upstream, place: Place) -> None:
    if upstream.wants_login and upstream.credentials is None:
        place.add(
            f"{MAIN}.credentials",
            f"are missing: a fleet has a topic at these brokers, and they require a login ({upstream.protocol})",
            f"write [{MAIN}.credentials]",
        )


def check_fleet_needs(config: Config, place: Place) -> None:
    """Report a secret or a folder that cannot be used."""
    if config.fleet is None:
        return
    try:
        read_fleet_key(config.fleet.secret_file)
    except CredentialsError as error:
        place.add(f"fleet.{error.key}", error.problem, error.remedy)
    if config.fleet.directory is not None and (found := directory_problem(config.fleet.directory)) is not None:
        place.add("fleet.directory", *found)
