"""The demo: an embedded mock cluster, Sluice in front of it, and three clients."""
