"""Connections to brokers, for clients and our own."""
