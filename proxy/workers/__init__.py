"""Several processes: a supervisor that accepts connections, and workers that relay them."""
