"""The proxy: uses `protocol` and `quota`, and does all I/O."""
