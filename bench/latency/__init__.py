"""The latency that a proxy adds to a request."""
