"""Whether the demo kept its quotas."""
