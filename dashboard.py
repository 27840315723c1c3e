"""Show every run in a browser: python dashboard.py [FOLDER …]; or: make dashboard."""

from __future__ import annotations

import sys

from monitoring.web.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
