"""Calls GPU drivers in a process of their own, so that a crash of one ends nothing else."""
