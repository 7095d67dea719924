"""Quota files as the pipeline uses them: what a group's bound would be, and how a proposal is written. The proxy has its own reader."""
