"""Pages made of what several workers report."""
