"""Monitoring's files in a run directory: records, their files, and what can be read off them."""
