"""`make help` is made from the Makefile's own comments."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MAKEFILE = """\
VARIABLE := x ## not a target
##@ Training
train all: $(setup)\t\t## train what is configured
\t@python train.py ## not help
silent: train
##@ Configuration
defconfig:\t\t## [DEFCONFIG=name] start from a preset
# defconfig-<name>: $(setup)\t## the same, completed by tab
"""


def test_help_lists_targets_under_their_headings(root: Path, tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(MAKEFILE)
    result = subprocess.run(
        [sys.executable, root / "scripts" / "make_help.py", tmp_path / "Makefile"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == (
        "Training:\n"
        "  train, all        train what is configured\n"
        "\n"
        "Configuration:\n"
        "  defconfig         [DEFCONFIG=name] start from a preset\n"
        "  defconfig-<name>  the same, completed by tab\n"
    )
