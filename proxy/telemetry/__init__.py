"""Log, counters, latencies, garbage collection, and lag of the event loop."""
