"""Converts usage of a day to charges: exact line items, sums by tenant, and the columns of FOCUS."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

from pipeline.rollup.content.focus import FIXED, OF_VALUE
from pipeline.rollup.prices import SKUS, Price, Prices, Sku

_DIGITS: Final = 60
_QUOTIENT: Final = Decimal("1e-15")
"""Spark rounds the quotient of two decimals to so many places, and then to those of the column."""
_QUANTITY: Final = Decimal("1e-9")
_AMOUNT: Final = Decimal("1e-6")


@dataclass(frozen=True, slots=True)
class UsedInDay:
    """Usage of one client on one day; `units` are the sums of the columns of `SKUS`, in their order."""

    date: str
    tenant: str
    principal: str
    client_id: str
    units: Sequence[int]


@dataclass(frozen=True, slots=True)
class Charge:
    """A line item; `correction` is the batch of late file sets, None: it is no correction."""

    used: UsedInDay
    sku: Sku
    units: int
    quantity: Decimal
    price: Decimal
    amount: Decimal
    currency: str
    correction: str | None


def charges_of(usage: Iterable[UsedInDay], prices: Prices, correction: str | None) -> list[Charge]:
    """Return one line item per day, client and SKU that has a price and was used."""
    charges = []
    with localcontext() as context:
        context.prec = _DIGITS
        for used in usage:
            for sku, units in zip(SKUS, used.units, strict=True):
                price = _price_of(prices.prices, sku, used) if units else None
                if price is None:
                    continue
                quantity = (Decimal(units) / sku.size).quantize(_QUOTIENT, ROUND_HALF_UP).quantize(_QUANTITY, ROUND_HALF_UP)
                amount = (Decimal(units) * price / sku.size).quantize(_AMOUNT, ROUND_HALF_UP)
                charges.append(Charge(used, sku, units, quantity, price, amount, prices.currency, correction))
    return charges


def _price_of(prices: Iterable[Price], sku: Sku, used: UsedInDay) -> Decimal | None:
    """Return the latest price up to the day; a tenant's own price takes precedence."""
    fitting = [
        price
        for price in prices
        if price.sku == sku.name and price.since <= used.date and (price.tenant is None or price.tenant == used.tenant)
    ]
    return max(fitting, key=lambda price: (price.tenant is not None, price.since)).price if fitting else None


def chargeback_rows(charges: Iterable[Charge], coverage: Mapping[str, float | None], inputs: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the sums of line items by tenant and day, as rows of CHARGEBACK.

    Args:
        charges: the line items.
        coverage: percentage of each day.
        inputs: the hash over each day's manifests.
    """
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for charge in charges:
        date, tenant = charge.used.date, charge.used.tenant
        row = sums.setdefault(
            (date, tenant, charge.sku.name),
            {
                "start": _start(date),
                "tenant": tenant,
                "sku": charge.sku.name,
                "unit": charge.sku.unit,
                "units": 0,
                "quantity": Decimal(0),
                "amount": Decimal(0),
                "currency": charge.currency,
                "correction": charge.correction,
                "coverage_percent": coverage.get(date),
                "inputs": inputs.get(date),
                "date": date,
            },
        )
        for name in ("units", "quantity", "amount"):
            row[name] += getattr(charge, name)
    return list(sums.values())


def focus_rows(charges: Iterable[Charge]) -> Iterator[dict[str, Any]]:
    """Yield line items in the columns of FOCUS. An adjustment has the charge class Correction."""
    for charge in charges:
        used, sku = charge.used, charge.sku
        begin = _start(used.date)
        month = begin.replace(day=1)
        tags = {"principal": used.principal, "client_id": used.client_id, "correction": charge.correction}
        values = {
            "quantity": charge.quantity,
            "unit": sku.unit,
            "amount": charge.amount,
            "price": charge.price,
            "sku": sku.name,
            "tenant": used.tenant,
            "resource": f"{used.principal}/{used.client_id}",
        }
        yield {
            **FIXED,
            "BillingPeriodStart": month,
            "BillingPeriodEnd": (month + datetime.timedelta(days=32)).replace(day=1),
            "ChargePeriodStart": begin,
            "ChargePeriodEnd": begin + datetime.timedelta(days=1),
            "ChargeClass": None if charge.correction is None else "Correction",
            "ChargeDescription": f"Kafka: {sku.description} of {used.principal} {used.client_id}",
            "BillingCurrency": charge.currency,
            **{name: values[value] for value, names in OF_VALUE.items() for name in names},
            "Tags": as_json(tags),
            "date": used.date,
        }


def as_json(row: Mapping[str, Any]) -> str:
    """Return a row as JSON without its nulls, as Spark's `to_json` does."""
    return json.dumps({name: value for name, value in row.items() if value is not None}, ensure_ascii=False, separators=(",", ":"))


def _start(date: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(date).replace(tzinfo=datetime.UTC)
