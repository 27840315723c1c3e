"""The Python of a worker of pytest: a fork of an interpreter that has imported what test modules need.

    pytest --tx '6*popen//python=python tests/warm_worker.py MODULE…'

Six workers that import it themselves take half a minute of CPU time. Execnet adds `-u -c CODE`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    """Run the code in a fork until that ends; its exit code."""
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    # the workers of one run of pytest share one server
    os.environ["PYTEST_XDIST_TESTRUNUID"] = f"workers of {os.getppid()}"
    from tests.warm_python import WarmPython

    del os.environ["PYTEST_XDIST_TESTRUNUID"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker
    *modules, _, is_code, code = arguments
    warm = WarmPython(*modules)
    return warm.start([is_code, code]).wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
