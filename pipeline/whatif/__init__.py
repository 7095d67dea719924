"""What another quota file would have done with the decisions that are recorded. Needs no Spark."""
