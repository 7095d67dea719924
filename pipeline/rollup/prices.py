"""The price file: prices by SKU, first day, and optionally tenant. It is TOML with amounts as strings, which avoids rounding."""

import datetime
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from pipeline.errors import BadInputError
from pipeline.rollup.tenants import UNASSIGNED, TenantLine
from pipeline.storage.paths import AnyPath


@dataclass(frozen=True, slots=True)
class Sku:
    """A kind of usage that has a price.

    Attributes:
        name: its key in the price file.
        column: the column of the usage table; its sum is divided by `size` to give units.
        unit: the name of the unit in FOCUS.
    """

    name: str
    column: str
    size: int
    unit: str
    description: str


SKUS: Final = (
    Sku("produced_gib", "produce_bytes", 2**30, "GiB", "bytes produced"),
    Sku("fetched_gib", "fetch_bytes", 2**30, "GiB", "bytes fetched"),
    Sku("million_requests", "requests", 1_000_000, "1000000 Requests", "requests"),
    Sku("broker_hour", "handler_ns", 3_600 * 10**9, "Hours", "time of the broker's threads"),
)
_CURRENCY: Final = re.compile("[A-Z]{3}")
_KEYS: Final = {sku.name for sku in SKUS}
PLACES_MAX: Final = 6
PRICE_END: Final = 1_000_000
FIRST_DAY: Final = "0001-01-01"


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one SKU from one day on, for one tenant, or for all tenants when `tenant` is None."""

    sku: str
    since: str
    tenant: str | None
    price: Decimal


@dataclass(frozen=True, slots=True)
class Prices:
    """The content of a price file. A later day overrides an earlier one, and a tenant's own price overrides the general price."""

    currency: str
    prices: tuple[Price, ...]


def unknown_tenants(prices: Prices | None, lines: Iterable[TenantLine]) -> set[str]:
    """Return the tenants that have prices of their own and appear in no line of the tenants file."""
    named = {price.tenant for price in prices.prices if price.tenant is not None} if prices is not None else set()
    return named - {line.tenant for line in lines} - {UNASSIGNED}


def read_prices(path: AnyPath) -> Prices:
    """Read a price file.

    Raises:
        BadInputError: the file cannot be read, or has an invalid entry.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read as TOML ({error}); write currency and [[price]] tables") from error
    currency, rows = table.get("currency"), table.get("price", [])
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise BadInputError(f'{path}: currency is not a code of three letters; write currency = "EUR"')
    if set(table) - {"currency", "price"} or not isinstance(rows, list) or not rows:
        raise BadInputError(f"{path}: write currency and at least one [[price]], nothing else")
    prices = [price for number, row in enumerate(rows, 1) for price in _read_row(path, number, row)]
    _check_once(path, rows)
    return Prices(currency, tuple(prices))


def _check_once(path: AnyPath, rows: list[dict[str, Any]]) -> None:
    """Refuse two prices for the same SKU, day and tenant, since the choice would be arbitrary."""
    seen: set[tuple[str, str, str | None]] = set()
    for number, row in enumerate(rows, 1):
        for key in sorted(set(row) & _KEYS):
            price = (key, str(row.get("from", FIRST_DAY)), row.get("tenant"))
            if price in seen:
                raise BadInputError(f"{path}: price[{number}]: {key} occurs twice for the same day and tenant; remove one")
            seen.add(price)


def _read_row(path: AnyPath, number: int, row: Any) -> list[Price]:
    place = f"{path}: price[{number}]"
    if not isinstance(row, dict) or set(row) - _KEYS - {"from", "tenant"} or not set(row) & _KEYS:
        raise BadInputError(f"{place}: write some of {', '.join(sorted(_KEYS))}, and from and tenant if need be")
    since, tenant = str(row.get("from", FIRST_DAY)), row.get("tenant")
    if not _is_day(since):
        raise BadInputError(f"{place}: from is not a day; write from = 2026-01-01")
    if tenant is not None and (not isinstance(tenant, str) or not tenant):
        raise BadInputError(f'{place}: tenant is not a name; write it as in the tenants file, tenant = "shop"')
    return [Price(key, since, tenant, _amount(place, key, row[key])) for key in sorted(set(row) & _KEYS)]


def _is_day(text: str) -> bool:
    try:
        return datetime.date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _amount(place: str, key: str, value: Any) -> Decimal:
    try:
        amount = Decimal(value) if isinstance(value, str | int) and not isinstance(value, bool) else Decimal("NaN")
    except InvalidOperation:
        amount = Decimal("NaN")
    exponent = amount.as_tuple().exponent
    if not amount.is_finite() or not 0 <= amount < PRICE_END or not isinstance(exponent, int) or exponent < -PLACES_MAX:
        raise BadInputError(
            f'{place}: {key} is not an amount below {PRICE_END:,} of at most {PLACES_MAX} decimals; write it as text, such as "0.05"'
        )
    return amount
