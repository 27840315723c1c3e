"""`python -m kharness`: the command `kharness`."""

from __future__ import annotations

from kharness.cli import entry

if __name__ == "__main__":
    entry()
