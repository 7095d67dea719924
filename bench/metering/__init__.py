"""The cost of metering."""
