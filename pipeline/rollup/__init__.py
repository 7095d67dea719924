"""Usage and decisions by hour and day: plans which hours to build, and publishes the tables."""
