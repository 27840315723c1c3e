"""This machine and its processes."""
