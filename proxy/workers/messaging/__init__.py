"""Communication between supervisor and workers: messages, passed connections, and questions with synchronous answers."""
