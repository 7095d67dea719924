"""Quota files in the pipeline, which reads them without the proxy's code. It looks up the bound of a group."""
