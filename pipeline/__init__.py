"""Reads metering files: usage by client, validation of every throttle, the effect of another quota file."""
