"""Kafka's quota APIs, answered here: who may, what is asked, what is changed."""
