"""Checks that the packages which a setting needs are installed."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.base.packages import FLEET, METERING, TOPIC, missing, need, remedy
from proxy.config.flags import Flags
from proxy.config.model import Config
from proxy.config.problem import COMMAND_LINE, Problem


def check_packages(config: Config, flags: Flags, file: str, problems: list[Problem]) -> None:
    """Report settings that need packages which are not installed.

    Args:
        config: the settings.
        flags: the flags of the command line; a setting that comes from one is named by it.
        file: the configuration file, or the command line, for messages.
        problems: receives one problem for each setting.
    """
    for key, modules in _needed(config):
        requirements = missing(modules)
        if requirements:
            is_flag = key == "metering" and flags.metering is not None
            place = (COMMAND_LINE, "--metering") if is_flag else (file, key)
            problems.append(Problem(*place, need(requirements), remedy(requirements)))


def _needed(config: Config) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each setting in force that needs packages, and their modules."""
    if config.metering.is_on:
        yield "metering", METERING
        if config.metering.topic is not None:
            yield "metering.topic", TOPIC
    if config.quotas.store == "topic":
        yield "quotas.topic", TOPIC
    if config.fleet is not None:
        yield "fleet", FLEET if config.fleet.directory is not None else (*TOPIC, *FLEET)
