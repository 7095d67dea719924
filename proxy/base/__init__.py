"""Common parts: time, errors, hosts and networks, units, text."""
