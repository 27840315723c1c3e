"""`python -m monitoring.bridge DIR -- COMMAND…`: run a program and record what it reports."""

from __future__ import annotations

import os
import sys

from monitoring.bridge.sooner import before_start

if __name__ == "__main__":
    before_start()
    from monitoring.bridge.bridge import main

    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an interpreter that takes itself apart costs a seventh of all that a bridge does
