"""Numbers that show whether members have the same quotas and limits."""
