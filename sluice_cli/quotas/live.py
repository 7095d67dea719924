"""Formats what the admin port reports on a client."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluice.admin import ClientQuotaEntity
from sluice_cli.admin.port import AdminPort
from sluice_cli.quotas.printing import number


def kept(page: Mapping[str, Any]) -> dict[ClientQuotaEntity, dict[str, float]]:
    """Return the quotas of a response of /admin/quotas."""
    entries = page["quotas"]
    return {ClientQuotaEntity.of(entry["entity"]): {key: float(value) for key, value in entry["values"].items()} for entry in entries}


def live_lines(
    port: AdminPort, user: str | None, client_id: str | None, ip: str | None, listener: str | None = None, address: str | None = None
) -> dict[str, list[str]]:
    """Return lines by quota: what applies beside the levels of precedence, and the current usage.

    Args:
        listener, address: of the client, for switches and declared groups that depend on them.

    Raises:
        AdminPortError: the port did not answer, or refused.
    """
    return lines_of(port.get("/explain", user=user, client_id=client_id, ip=ip, listener=listener, address=address))


def lines_of(page: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return lines by quota, from a response of /explain."""
    return {quota["key"]: [*_standing(page, quota), *_groups(quota), *_rates(quota)] for quota in page["quotas"]}


def _standing(page: Mapping[str, Any], quota: Mapping[str, Any]) -> Iterator[str]:
    if page.get("exempt"):
        yield "exempt: no quota applies"
    elif page.get("switch"):
        yield f"switched to {page['switch']}"
    chain = quota.get("declared")
    if chain:
        links = ", a part of ".join(f"{link['group']} ({_rounded(link['bound'])})" for link in chain)
        yield f"counts for the declared group {links} instead"


def _groups(quota: Mapping[str, Any]) -> Iterator[str]:
    for group in quota.get("groups", []):
        bound = "unlimited" if group["bound"] is None else f"of {_rounded(group['bound'])}"
        wait = f", waits {group['throttled_for_ms']} ms more" if group["throttled_for_ms"] else ""
        pace = f", paced with a lead of {group['paced']['lead_ms']} ms" if "paced" in group else ""
        tags = ",".join(f"{key}={value}" for key, value in group["tags"].items() if value) or "everyone"
        uses = f"group {tags} uses {_rounded(group['observed'])} {bound}{pace}{wait}"
        yield f"now at {group['broker']}: {uses}; throttled {group['throttle_count']} times"
        yield f"  shared by {_sharers(group['shared_by'])}"


def _rates(quota: Mapping[str, Any]) -> Iterator[str]:
    for rate in quota.get("rates", []):
        opens = f"{rate['ip']} opens {_rounded(rate['rate'])} connections a second of {rate['bound']}"
        yield f"now at {rate['broker']}: {opens}, has {rate['connections']} open"


def _sharers(shared: Mapping[str, Any]) -> str:
    if not shared["connections"]:
        return "no client that is connected now"
    named = ", ".join(f"{one['principal']} {one['client_id'] or '(no client-id)'} ({one['connections']})" for one in shared["named"])
    left = shared["clients"] - len(shared["named"])
    return f"{named} and {left} more" if left else named


def _rounded(value: float | str) -> str:
    return value if isinstance(value, str) else number(round(value, 2))
