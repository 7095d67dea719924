"""Metrics, health, pages about quotas and connections, and the profiler. This package only reads the state of the proxy."""
