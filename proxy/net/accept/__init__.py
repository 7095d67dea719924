"""From a listening port to a connection that is let in."""
