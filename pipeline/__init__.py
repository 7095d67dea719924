"""Reads metering files. Reports usage by client, validates every throttle decision, and computes the effect of other quota files."""
