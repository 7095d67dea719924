"""Kafka's quota APIs as Sluice answers them: authorization, reads and changes."""
