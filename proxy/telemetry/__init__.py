"""What the process says of itself: log, counters, latencies, garbage collection, the lag of its event loop."""
