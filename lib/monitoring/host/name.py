"""The name of this host in a run's files, and the part of it that can stand in a file's name."""

from __future__ import annotations

import os
import re

# Its value is the name where hosts have none of their own, as containers that are all called `localhost`.
HOST_NAME = "MONITORING_HOST_NAME"

# Characters of a host name on Linux at most.
LONGEST = 64


def host_name() -> str:
    """Return the environment's name for this host, else the system's."""
    return os.environ.get(HOST_NAME) or os.uname().nodename


def in_file_names(host: str) -> str:
    """Return the host name if it is safe in a file name; else its safe part and 6 hex digits."""
    kept = re.sub(r"[^A-Za-z0-9._-]", "_", host)[:LONGEST]
    if kept == host and host:
        return host
    import hashlib  # few names need it

    return f"{kept}-{hashlib.md5(host.encode(errors='replace'), usedforsecurity=False).hexdigest()[:6]}"
