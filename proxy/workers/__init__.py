"""Several processes that relay, below one that accepts: the workers and their supervisor."""
