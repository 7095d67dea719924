"""Which quotas would fit what clients did. Needs no Spark."""
