"""A Sluice of several processes compared with Sluices of one."""
