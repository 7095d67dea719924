"""Changing quotas of this proxy: who may, within which limits, under which profile, and what is written down about it."""
