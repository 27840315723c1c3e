"""How an attempt ended, in the word of its end record."""

from __future__ import annotations

from typing import Final, Literal

EndStatus = Literal["complete", "interrupted", "failed"]

COMPLETE: Final = "complete"
INTERRUPTED: Final = "interrupted"
FAILED: Final = "failed"
