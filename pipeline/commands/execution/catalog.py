"""Options that name an Iceberg catalog."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from pipeline.errors import BadInputError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

MODULES: Final = ("pyiceberg", "sqlalchemy")
REQUIREMENT: Final = "pyiceberg[pyarrow,sql-sqlite]>=0.12,<1"
"""The extra `iceberg` of Sluice."""


@dataclass(frozen=True, slots=True)
class CatalogChoice:
    """A catalog: its name in pyiceberg's configuration, and properties of the form KEY=VALUE."""

    name: str
    properties: Sequence[str]

    def open(self, option: str) -> Catalog:
        """Open the catalog.

        Args:
            option: the option or command that needs it, for messages.

        Raises:
            BadInputError: pyiceberg is not installed, a property is invalid, or the catalog cannot be reached.
        """
        properties = dict(map(_property, self.properties))
        if any(importlib.util.find_spec(module) is None for module in MODULES):
            remedy = f'run `pip install "{REQUIREMENT}"` where Sluice is installed'
            raise BadInputError(f"{option}: needs pyiceberg (the extra `iceberg`), which is not installed; {remedy}")
        from pipeline.iceberg.catalog import open_catalog

        return open_catalog(self.name, properties)


def catalog_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add --catalog and --property to a command, which receives them as `catalog` and `properties`."""
    options: list[Callable[[Any], Any]] = [
        click.option("--catalog", metavar="NAME", help="Iceberg catalog: its name in pyiceberg's configuration.  [default: default]"),
        click.option(
            "--property", "properties", multiple=True, metavar="KEY=VALUE", help="Property of the catalog, such as uri; may be repeated."
        ),
    ]
    decorated = function
    for option in reversed(options):
        decorated = option(decorated)
    return decorated


def chosen_catalog(name: str | None, properties: Sequence[str]) -> CatalogChoice:
    """Return the catalog that the options name."""
    return CatalogChoice(name or "default", properties)


def _property(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not (key and sign):
        raise BadInputError(f'--property: "{text}" is not KEY=VALUE; write for example uri=http://HOST:PORT')
    return key, value
