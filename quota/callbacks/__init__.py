"""Who resolves clients to groups: Kafka's ClientQuotaCallback."""
