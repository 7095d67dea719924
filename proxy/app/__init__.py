"""The composition root: puts all parts together, reloads them, ends them."""
