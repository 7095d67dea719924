"""Quota files in the pipeline: the bound of a group, and the text of a proposal. The proxy has its own reader."""
