"""Kafka's quota arithmetic and tables: numbers and times in, milliseconds out; no clock, no socket, no log."""
