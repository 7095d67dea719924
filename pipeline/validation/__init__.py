"""Was every decision right: each recomputed, and the first divergence of every group explained."""
