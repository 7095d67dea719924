"""What segments say beside decisions."""
