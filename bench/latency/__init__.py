"""What a proxy adds to the latency of a request."""
