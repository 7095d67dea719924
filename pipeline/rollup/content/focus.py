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
