"""A Sluice of several processes beside Sluices of one."""
