"""What every part uses: time, errors, names of hosts and networks, units, text."""
