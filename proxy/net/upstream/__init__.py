"""Connections to brokers, for clients and for Sluice itself."""
