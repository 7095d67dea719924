"""Responses of the broker, and their effect on quotas."""
