"""Who used what, hour by hour and day by day: what is read, what is built again, and how it is published."""
