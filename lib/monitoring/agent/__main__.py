"""`python -m monitoring.agent RUN_DIR`: follow a run to its end."""

from __future__ import annotations

from monitoring.agent.follow import leave, main

if __name__ == "__main__":
    leave(main())
