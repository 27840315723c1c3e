"""`python -m monitoring.gpu_monitor`: a line for each GPU of each sample, until Ctrl-C."""

from __future__ import annotations

import sys

from monitoring.gpu_monitor.command import main

if __name__ == "__main__":
    sys.exit(main())
