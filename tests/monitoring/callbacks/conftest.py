"""The programs of docs/callbacks.md."""

from __future__ import annotations

import re
from pathlib import Path


def example(root: Path, name: str) -> str:
    """A program of docs/callbacks.md."""
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", (root / "docs/callbacks.md").read_text(), flags=re.S)
    programs: dict[str, str] = dict(blocks)
    return programs[name]
