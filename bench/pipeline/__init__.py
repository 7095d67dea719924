"""The speed of the pipeline."""
