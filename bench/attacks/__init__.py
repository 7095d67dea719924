"""Latency of other clients during attacks with long frames."""
