"""The configuration targets of make: kconfig.py TARGET [NAME=value…]."""

from pathlib import Path

from kharness.config.errors import run_command
from kharness.config.make.targets import run

if __name__ == "__main__":
    run_command(lambda argv: run(argv, Path(__file__).resolve().parent.parent))
