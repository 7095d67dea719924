"""Where quotas come from. A source keeps the last good table, whatever happens to its origin."""
