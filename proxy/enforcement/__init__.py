"""Which quota applies to a client, and how it is enforced."""
