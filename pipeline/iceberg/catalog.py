"""Opens an Iceberg catalog by pyiceberg's own configuration, and turns its errors to errors of input."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table, TableProperties
from sqlalchemy.exc import SQLAlchemyError

from pipeline.errors import BadInputError, IncompleteError, PipelineError
from sluice.object_store import first_line

_REMEDY: Final = "check --catalog, --property and pyiceberg's configuration, then run this again"
_UNREACHABLE: Final = (exceptions.RESTError, exceptions.ValidationError, exceptions.NotInstalledError, SQLAlchemyError, OSError, ValueError)
_MISSING: Final = (exceptions.NoSuchTableError, exceptions.NoSuchNamespaceError, exceptions.NoSuchIdentifierError)
_OVERTAKEN: Final = (exceptions.CommitFailedException, exceptions.ValidationException)


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog.

    Args:
        name: the name in pyiceberg's configuration (`.pyiceberg.yaml`, `PYICEBERG_CATALOG__NAME__URI`).
        properties: properties that take precedence over the configuration.

    Raises:
        BadInputError: the catalog is not configured, refuses, or cannot be reached.
    """
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # its warnings would be lines between those of the command
    with errors_of(name, hidden=properties):
        return load_catalog(name, **properties)


@contextlib.contextmanager
def errors_of(name: str, hidden: Mapping[str, str] = MappingProxyType({})) -> Iterator[None]:
    """Turn the errors of a catalog and its tables, in a block, to errors of input.

    Args:
        name: the name of the catalog.
        hidden: values that messages do not show, such as passwords, by their names.

    Raises:
        BadInputError: the catalog refuses, or cannot be reached.
        IncompleteError: another program has changed the same table meanwhile; nothing of this commit is in the table.
    """
    try:
        yield
    except PipelineError:
        raise
    except _OVERTAKEN as error:
        message = f"catalog {name}: another program has changed the table meanwhile ({first_line(error)}); run this again"
        raise IncompleteError(message) from error
    except _MISSING as error:
        raise BadInputError(f"catalog {name}: {first_line(error)}; {_REMEDY}") from error
    except _UNREACHABLE as error:
        reason = first_line(error)
        for key, value in hidden.items():
            reason = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", f"<{key}>", reason) if value else reason
        raise BadInputError(f"catalog {name}: cannot be used ({reason}); {_REMEDY}") from error


def without_retries(table: Table) -> Table:
    """Let a commit fail if another program commits first. pyiceberg would repeat it on the new state, for which it was not computed."""
    table.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"  # of this object; the catalog keeps the table's own value
    return table
