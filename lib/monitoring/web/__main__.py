"""`python -m monitoring.web [FOLDER …]`: see monitoring.web.command."""

from __future__ import annotations

import sys

from monitoring.web.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
