"""How long a connection is delayed, and which of its fetches are forwarded."""
