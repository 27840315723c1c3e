"""Test the trackers with the newest releases of the packages whose private interface they use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from monitoring.trackers import ANY_VERSION

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("trackio", "wandb")


def main() -> int:
    """pytest's exit code; pip's where a release cannot be installed. The environment stays as it is."""
    with tempfile.TemporaryDirectory() as folder:
        install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        code = subprocess.run([*install, "--target", folder, *PACKAGES], check=False).returncode
        if code:
            return code
        for package in PACKAGES:
            (found,) = Path(folder).glob(f"{package}-*.dist-info")
            print(f"check-newest: {found.stem.replace('-', ' ')}", flush=True)
        # The folder comes before the environment's own packages, in every process that the tests start.
        environment = {**os.environ, "PYTHONPATH": folder, ANY_VERSION: "y"}
        tests = [sys.executable, "-m", "pytest", "-n", "2", "tests/monitoring/trackers"]
        return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
