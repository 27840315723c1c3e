"""`python -m monitoring.agent RUN_DIR`: follow a run to its end."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # Nearly all that imports make stays; to look through it again and again is a tenth of a short agent.
    gc.set_threshold(50_000)

    from monitoring.agent.follow import leave, main

    leave(main())
