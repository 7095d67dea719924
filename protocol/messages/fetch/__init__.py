"""Fetch and ShareFetch responses (1, 78): their tail may contain node endpoints, and is found without storing records."""
