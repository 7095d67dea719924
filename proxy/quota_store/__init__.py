"""Where quotas and switches are kept, read and changed. A store keeps the last good content, whatever happens to its origin."""
