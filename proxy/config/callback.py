"""Loads the operator's class from `module:Class` in the configuration. Importing it runs its module."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.config.problem import ConfigProblems, Problem

_METHODS = (
    "quota_metric_tags",
    "quota_limit",
    "update_quota",
    "remove_quota",
    "quota_reset_required",
    "update_cluster_metadata",
    "close",
    "configure",
)


def load_callback_class(class_name: str, file: str) -> type[Any]:
    """Return the class named `class_name`; `file` is the configuration file, for messages.

    Raises:
        ConfigProblems: it cannot be imported, is not a class, or lacks a method of `ClientQuotaCallback`.
    """
    module_name, _, path = class_name.partition(":")
    found: Any = None
    try:
        found = importlib.import_module(module_name)
        for name in path.split("."):
            found = getattr(found, name)
    except Exception as error:  # noqa: BLE001 - the operator's module may raise anything
        _refuse(
            file,
            f'"{class_name}" cannot be imported: {type(error).__name__}: {error}',
            f"name a class whose module is in {Path(file).resolve().parent} or on PYTHONPATH",
        )
    if not isinstance(found, type):
        _refuse(file, f'"{class_name}" is not a class', "name a class")
    lacking = [method for method in _METHODS if not callable(getattr(found, method, None))]
    if lacking:
        _refuse(file, f'"{class_name}" has no {", ".join(lacking)}', "derive it from sluice.callback.ClientQuotaCallback")
    return found  # type: ignore[no-any-return]


def try_callback(class_name: str, settings: Mapping[str, Any], file: str) -> None:
    """Make one callback with its settings, and close it, so that its errors are known before a client connects.

    Raises:
        ConfigProblems: as `load_callback_class`, or the class cannot be made or configured.
    """
    found = load_callback_class(class_name, file)
    try:
        callback = found()
        callback.configure({**settings, "broker.id": -1})
        callback.close()
    except Exception as error:  # noqa: BLE001 - the operator's class may raise anything
        message = f'"{class_name}" rejects its settings: {type(error).__name__}: {error}'
        raise ConfigProblems([Problem(file, "callback.settings", message, "write the settings that the class expects")]) from None


def _refuse(file: str, message: str, remedy: str) -> None:
    raise ConfigProblems([Problem(file, "callback.class", message, remedy)])
