"""How long a connection waits, and which of its fetches go on."""
