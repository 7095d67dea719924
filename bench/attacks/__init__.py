"""Latency beside long frames."""
