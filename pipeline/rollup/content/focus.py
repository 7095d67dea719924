"""Column names of FOCUS, the FinOps billing format. Source: FOCUS 1.0, column list."""

from typing import Final

PROVIDER: Final = "Sluice"

TIMES: Final = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")
COSTS: Final = ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost", "ListUnitPrice", "ContractedUnitPrice")
QUANTITIES: Final = ("ConsumedQuantity", "PricingQuantity")
TEXTS: Final = (
    "AvailabilityZone",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ConsumedUnit",
    "InvoiceIssuerName",
    "PricingCategory",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "SkuId",
    "SkuPriceId",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)

FIXED: Final = {
    "ChargeCategory": "Usage",
    "ChargeFrequency": "Usage-Based",
    "PricingCategory": "Standard",
    "ServiceCategory": "Integration",
    "ServiceName": "Apache Kafka",
    "ResourceType": "Kafka client",
    **dict.fromkeys(("ProviderName", "PublisherName", "InvoiceIssuerName", "BillingAccountId", "BillingAccountName"), PROVIDER),
}
"""Columns with the same text in every row."""
OF_VALUE: Final = {
    "quantity": QUANTITIES,
    "unit": ("ConsumedUnit", "PricingUnit"),
    "amount": ("BilledCost", "EffectiveCost", "ContractedCost", "ListCost"),
    "price": ("ListUnitPrice", "ContractedUnitPrice"),
    "sku": ("SkuId", "SkuPriceId"),
    "tenant": ("SubAccountId", "SubAccountName"),
    "resource": ("ResourceId", "ResourceName"),
}
"""The columns that each value of a line item fills."""
UNKNOWN: Final = ("AvailabilityZone", "RegionId", "RegionName")
"""Columns that are null."""
