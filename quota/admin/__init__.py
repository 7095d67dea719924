"""Reading and changing quotas as Kafka's brokers do it: APIs 48 and 49 without their wire (KIP-546, KIP-612)."""
