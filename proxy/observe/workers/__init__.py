"""Pages made from the reports of several workers."""
