"""Connection storms."""
