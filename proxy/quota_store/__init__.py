"""Stores of quotas and switches. A store keeps the last valid content while its source is invalid or unreachable."""
