"""Names of clients and groups, and their tenants, as tables with numbers. Sums are made by number; names come last.

`clients` has a row for each number of a run, and `gold_client_number`, which equal names share. `groups` has the same for quota groups.
The gold numbers of groups are in the order of their names.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_plus

from pipeline.duckdb.database import Database
from pipeline.rollup.content.columns import GROUP
from pipeline.rollup.tenants import UNASSIGNED

GROUP_NAMES: Final = [name for name, _ in GROUP]
_BROKEN_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_GROUP_MAXIMA: Final = ("quota_type", "scope", "listener", "tag_user", "tag_client_id", "tag_ip", "tags", "num_samples")


def number_names(database: Database) -> None:
    """Make the tables `clients`, `gold_clients`, `groups` and `gold_groups`."""
    database.name_function("try_decoded", decoded, ["VARCHAR"], "VARCHAR")
    database.run("""
        CREATE TABLE plain_clients AS
        SELECT run_id, client_ref, max(principal_type) AS principal_type, max(principal) AS principal, max(client_id) AS client_id
        FROM raw_dim_client GROUP BY ALL""")
    database.run(f"""
        CREATE TABLE clients AS
        SELECT *, concat_ws(':', principal_type, principal) AS whole_principal,
               dense_rank() OVER (ORDER BY tenant, concat_ws(':', principal_type, principal), client_id) AS gold_client_number
        FROM ({_with_tenant("plain_clients", "principal", "client_id", "run_id, client_ref")})""")
    database.run("""
        CREATE TABLE gold_clients AS
        SELECT DISTINCT gold_client_number, tenant, whole_principal AS principal, client_id FROM clients""")
    maxima = ", ".join(f"max({name}) AS {name}" for name in _GROUP_MAXIMA)
    database.run(f"""
        CREATE TABLE plain_groups AS
        SELECT run_id, proxy_id, group_ref, {maxima}, max(coalesce(node, node_id::VARCHAR)) AS node, max(window_ms) AS group_window_ms,
               try_decoded(max(tag_user)) AS decoded_user
        FROM raw_dim_group GROUP BY run_id, proxy_id, group_ref""")
    own = _with_tenant("plain_groups", "decoded_user", "tag_client_id", "run_id, proxy_id, group_ref")
    database.run(f"CREATE TABLE own_groups AS {own}")
    database.run(f"""
        CREATE TABLE groups AS
        SELECT *, dense_rank() OVER (ORDER BY {", ".join(f"{name} NULLS FIRST" for name in GROUP_NAMES)}) AS gold_group_number
        FROM ({_with_members_tenant()})""")
    database.run(f"CREATE TABLE gold_groups AS SELECT DISTINCT gold_group_number, {', '.join(GROUP_NAMES)} FROM groups")


def decoded(name: str) -> str | None:
    """Return a user name as it was before Kafka sanitized it; None: it is not sanitized correctly."""
    return None if _BROKEN_ESCAPE.search(name) else unquote_plus(name)


def _with_tenant(table: str, user: str, client_id: str, key: str) -> str:
    """Return a query that adds `tenant`: that of the first line of the tenants file that matches both names. No name counts as empty."""
    return f"""
        WITH named AS (SELECT {key}, coalesce({user}, '') AS its_user, coalesce({client_id}, '') AS its_client FROM {table}),
        distinct_names AS (SELECT DISTINCT its_user, its_client FROM named),
        first AS (
            SELECT its_user, its_client, min_by(tenant, position) AS tenant
            FROM distinct_names JOIN tenants ON regexp_matches(its_user, tenants.user) AND regexp_matches(its_client, tenants.client_id)
            GROUP BY ALL)
        SELECT {table}.*, coalesce(first.tenant, '{UNASSIGNED}') AS tenant
        FROM {table} LEFT JOIN first ON its_user = coalesce({user}, '') AND its_client = coalesce({client_id}, '')"""


def _with_members_tenant() -> str:
    """Return a query for the tenant that all clients of a group's user, or of its client-id, have in common.

    When they have none, the group's own name decides. Alone it could match a line for other clients, such as the last one.
    """
    query = "own_groups"
    for of, name, other in (("decoded_user", "principal", "tag_client_id"), ("tag_client_id", "client_id", "decoded_user")):
        query = f"""(
            SELECT its.* REPLACE (coalesce(in_common, tenant) AS tenant)
            FROM {query} AS its LEFT JOIN (
                SELECT run_id AS its_run, {name} AS its_name, CASE WHEN count(DISTINCT tenant) = 1 THEN max(tenant) END AS in_common
                FROM clients GROUP BY ALL) ON run_id = its_run AND {of} = its_name AND {of} != '' AND coalesce({other}, '') = '')"""
    return f"SELECT * FROM {query}"
