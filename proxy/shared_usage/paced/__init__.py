"""Paced groups that several processes share: their usage, and an order among their members over all processes."""
