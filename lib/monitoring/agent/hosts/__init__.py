"""Agents of a run on several hosts: each host but rank 0's has one of its own, which only samples."""
