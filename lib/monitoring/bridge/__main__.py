"""`python -m monitoring.bridge DIR -- COMMAND…`: run a program and record what it reports."""

from __future__ import annotations

import sys

from monitoring.bridge.bridge import main

if __name__ == "__main__":
    sys.exit(main())
