"""Which quota applies to whom, and how it is enforced."""
