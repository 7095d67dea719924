"""Proposes quotas that fit the recorded demand. Needs no Spark."""
