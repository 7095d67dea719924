"""Several processes that relay, under one that accepts: the supervisor and its workers."""
