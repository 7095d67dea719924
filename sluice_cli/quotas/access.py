"""Reading and changing many quotas, at brokers by Kafka's API or at Sluice's admin port."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from quota.entity import DEFAULT
from sluice.admin import (
    ClientQuotaAlteration,
    ClientQuotaEntity,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
    QuotaAdmin,
    QuotaAdminError,
)
from sluice_cli.admin.port import AdminPort
from sluice_cli.quotas.bulk import Quotas
from sluice_cli.quotas.connection import ConnectionOptions, admin_port, cluster
from sluice_cli.quotas.live import kept

Errors = dict[ClientQuotaEntity, QuotaAdminError]


class QuotaAccess(Protocol):
    """Access to quotas."""

    def describe(self, parts: Mapping[str, str | None] | None = None) -> Quotas:
        """Return all quotas, or those of the entity with exactly these parts."""

    def alter(self, alterations: Sequence[ClientQuotaAlteration], *, validate_only: bool) -> Errors:
        """Make changes, or only validate them; return the refused ones."""


class _Brokers:
    def __init__(self, admin: QuotaAdmin) -> None:
        self._admin = admin

    def describe(self, parts: Mapping[str, str | None] | None = None) -> Quotas:
        return self._admin.describe_client_quotas(None if parts is None else _exactly(parts))

    def alter(self, alterations: Sequence[ClientQuotaAlteration], *, validate_only: bool) -> Errors:
        results = self._admin.alter_client_quotas(alterations, validate_only=validate_only)
        return {entity: error for entity, error in results.items() if error is not None}


class _Port:
    def __init__(self, port: AdminPort) -> None:
        self._port = port

    def describe(self, parts: Mapping[str, str | None] | None = None) -> Quotas:
        query = {kind.replace("-", "_"): DEFAULT if name is None else name for kind, name in (parts or {}).items()}
        return kept(self._port.get("/admin/quotas", **query))

    def alter(self, alterations: Sequence[ClientQuotaAlteration], *, validate_only: bool) -> Errors:
        entries = [{"entity": one.entity.entries, "ops": one.ops} for one in alterations]
        page = self._port.post("/admin/quotas", {"entries": entries, "validate_only": validate_only})
        return {
            ClientQuotaEntity.of(result["entity"]): QuotaAdminError(result["error"] or "no reason was given", result["error_code"])
            for result in page["results"]
            if result["error_code"]
        }


def _exactly(parts: Mapping[str, str | None]) -> ClientQuotaFilter:
    component = ClientQuotaFilterComponent
    return ClientQuotaFilter.contains_only(
        component.of_default_entity(kind) if name is None else component.of_entity(kind, name) for kind, name in parts.items()
    )


@contextlib.contextmanager
def open_access(connection: ConnectionOptions) -> Iterator[QuotaAccess]:
    """Yield the access by the options: through brokers, or without them through the admin port."""
    if connection.bootstrap_server is None and connection.command_config is None and connection.admin is not None:
        yield _Port(admin_port(connection))
        return
    with cluster(connection) as admin:
        yield _Brokers(admin)
