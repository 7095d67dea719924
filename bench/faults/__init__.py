"""Time and memory at each fault."""
