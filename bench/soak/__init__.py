"""An hour of mixed load and faults."""
