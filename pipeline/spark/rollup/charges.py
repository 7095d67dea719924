"""Converts usage to charges: exact line items, sums by tenant, and the columns of FOCUS. No session, path, action or UDF."""

from decimal import Decimal
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipeline.rollup.content.columns import USAGE_COUNTS
from pipeline.rollup.content.focus import FIXED, OF_VALUE, UNKNOWN
from pipeline.rollup.prices import SKUS
from pipeline.spark.rollup.silver import day_ms
from pipeline.spark.schemas import CHARGEBACK, CHARGES, FOCUS

_LINE: Final = ["date", "start", "tenant", "principal", "client_id"]


def charges_of(usage: DataFrame, prices: DataFrame, currency: str, correction: Column) -> DataFrame:
    """Return CHARGES: one row per day, client and SKU that has a price and was used.

    Args:
        usage: (date, start, tenant, principal, client_id) and the sums of USAGE, by any further key.
        prices: (sku, since, tenant, price).
        currency: code of the currency.
        correction: null for a charge; for an adjustment of a closed day, the batch of late file sets.
    """
    daily = usage.groupBy(*_LINE).agg(*(F.sum(name).alias(name) for name in USAGE_COUNTS))
    things = [
        F.struct(
            F.lit(sku.name).alias("sku"), F.col(sku.column).alias("units"), F.lit(sku.size).alias("size"), F.lit(sku.unit).alias("unit")
        )
        for sku in SKUS
    ]
    used = daily.select(*_LINE, F.explode(F.array(*things)).alias("thing")).select(*_LINE, "thing.*").where("units != 0")
    offered = F.broadcast(prices.select(F.col("sku").alias("its_sku"), "since", F.col("tenant").alias("for_tenant"), "price"))
    fits = (F.col("sku") == F.col("its_sku")) & (F.col("since") <= F.col("date"))
    fits &= F.col("for_tenant").isNull() | (F.col("for_tenant") == F.col("tenant"))
    priced = (
        used.join(offered, fits)
        .groupBy(*_LINE, "sku", "units", "size", "unit")
        .agg(F.max_by("price", F.struct(F.col("for_tenant").isNotNull().alias("own"), "since")).alias("price"))
    )
    quantity = F.col("units").cast("decimal(20,0)") / F.col("size").cast("decimal(14,0)")
    return priced.select(
        "*",
        quantity.cast("decimal(38,9)").alias("quantity"),
        _amount().alias("amount"),
        F.lit(currency).alias("currency"),
        correction.alias("correction"),
    ).to(CHARGES)


def _amount() -> Column:
    """Units times price by size, rounded half up at six places. Whole numbers are divided, since Spark rounds quotients of decimals."""
    millionths = (F.col("price").cast("decimal(12,6)") * 1_000_000).cast("decimal(12,0)")
    size = F.col("size").cast("decimal(14,0)")
    product = F.col("units").cast("decimal(20,0)") * millionths
    rest = product % size
    whole = ((product - rest) / size).cast("decimal(32,0)") + F.when(rest * 2 >= size, 1).otherwise(0)
    return (whole * F.lit(Decimal("0.000001"))).cast("decimal(38,6)")


def chargeback_of(charges: DataFrame, inputs: DataFrame) -> DataFrame:
    """Return CHARGEBACK: the sums of line items by tenant and day.

    Args:
        charges: rows of CHARGES.
        inputs: (date, coverage_percent, inputs): the day's coverage, and the hash over its manifests.
    """
    of = F.broadcast(inputs.select(F.col("date").alias("of_date"), "coverage_percent", "inputs"))
    sums = charges.groupBy("date", "start", "tenant", "sku", "unit", "currency", "correction").agg(
        F.sum("units").alias("units"), F.sum("quantity").alias("quantity"), F.sum("amount").cast("decimal(38,6)").alias("amount")
    )
    return sums.join(of, F.col("date") == F.col("of_date"), "left").to(CHARGEBACK)


def focus_of(charges: DataFrame) -> DataFrame:
    """Return line items in the columns of FOCUS. An adjustment has the charge class Correction."""
    month = F.trunc(F.col("date").cast("date"), "month")
    description = F.create_map(*(F.lit(text) for sku in SKUS for text in (sku.name, sku.description)))
    resource = F.concat_ws("/", "principal", "client_id")
    values = {"price": F.col("price").cast("decimal(38,6)"), "resource": resource}
    made = {
        "BillingPeriodStart": F.timestamp_millis(day_ms(month)),
        "BillingPeriodEnd": F.timestamp_millis(day_ms(F.add_months(month, 1))),
        "ChargePeriodStart": F.col("start"),
        "ChargePeriodEnd": F.col("start") + F.expr("interval 24 hours"),
        "ChargeClass": F.when(F.col("correction").isNotNull(), F.lit("Correction")),
        "ChargeDescription": F.concat_ws(" ", F.lit("Kafka:"), description[F.col("sku")], F.lit("of"), "principal", "client_id"),
        "BillingCurrency": F.col("currency"),
        **{name: values.get(value, F.col(value)) for value, names in OF_VALUE.items() for name in names},
        "Tags": F.to_json(F.struct("principal", "client_id", "correction")),
        **{name: F.lit(text) for name, text in FIXED.items()},
        **{name: F.lit(None).cast("string") for name in UNKNOWN},
        "date": F.col("date"),
    }
    return charges.select(*(made[field.name].alias(field.name) for field in FOCUS.fields)).to(FOCUS)
