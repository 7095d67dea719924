"""Stores of quotas and switches. A store keeps the last good content, whatever happens to its origin."""
