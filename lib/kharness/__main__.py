"""`python -m kharness`: the command `kharness`."""

from __future__ import annotations

from kharness.quiet import end_by_interrupt


def entry() -> None:
    """Run the command of this process; of what it imports nothing is worth a traceback."""
    end_by_interrupt()
    from kharness.cli import entry as run

    run()


if __name__ == "__main__":
    entry()
