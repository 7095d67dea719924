"""Quota traces printed by Kafka 3.8's own classes, and the command that replays them: `python -m tests.vectors DIR`."""
