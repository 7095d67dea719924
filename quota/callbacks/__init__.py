"""Callbacks that resolve clients to groups: Kafka's ClientQuotaCallback."""
