"""What Sluice looks into: one file per API, all other messages pass through unread."""
