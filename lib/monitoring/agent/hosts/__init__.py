"""A run on several hosts: each host that rank 0 is not on has an agent of its own, which only samples."""
