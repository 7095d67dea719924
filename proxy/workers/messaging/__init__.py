"""How the supervisor and its workers talk: messages, passed connections, and questions that a worker waits for."""
