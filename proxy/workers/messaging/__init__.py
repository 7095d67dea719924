"""Communication between supervisor and workers: messages, passed connections, and questions that a worker waits for."""
