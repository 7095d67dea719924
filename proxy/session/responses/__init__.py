"""What the broker answers, and what that means for quotas."""
