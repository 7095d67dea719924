"""What acts: sockets, timers, back-pressure. Every decision is the session's."""
