"""docs/options.md is what the Kconfig help texts say today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_options_page_is_up_to_date(root: Path) -> None:
    result = subprocess.run(
        [sys.executable, root / "scripts" / "options_doc.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stderr) == (0, "")
