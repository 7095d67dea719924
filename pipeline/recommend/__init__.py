"""Proposes quotas from the recorded demand, without Spark."""
