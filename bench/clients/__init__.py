"""Real clients at their quotas."""
