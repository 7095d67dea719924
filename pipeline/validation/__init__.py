"""Validates decisions: recomputes every one and explains the first divergence of each group."""
