"""Kafka's quota APIs as answered by Sluice: authorization, reads and changes."""
