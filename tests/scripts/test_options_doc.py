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


def test_an_option_that_each_model_has_is_told_of_all(root: Path) -> None:
    _, _, section = (root / "docs" / "options.md").read_text().partition("\n### DATASET\n\n")
    prompt, defaults, *_ = section.split("\n\n")
    assert prompt == (
        "Text if MODEL_READS_TEXT, or Dataset if MODEL_READS_DIGITS, or Pictures if MODEL_READS_PICTURES."
    )
    assert defaults == (
        "(default `pydoc-topics if MODEL_READS_TEXT, else mnist-subset if MODEL_READS_DIGITS, "
        "else digits if MODEL_READS_PICTURES`)"
    )
