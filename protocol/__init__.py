"""Sans-IO Kafka wire format: bytes in, values out. Knows no socket, no clock and no log."""
