"""Evaluates whether the clients of the demo kept their quotas."""
