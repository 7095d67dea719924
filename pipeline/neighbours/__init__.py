"""Who is a loud neighbour: whose load makes others slower, or makes them wait. Needs no Spark."""
