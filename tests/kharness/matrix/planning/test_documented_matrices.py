"""Every matrix that the pages and the README type is one that the option tree takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ....warm_python import WarmPython

ROOT = Path(__file__).resolve().parents[4]


def documented() -> list[list[str]]:
    """The arguments of every `make test_matrix` with axes."""
    found: dict[str, None] = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for block in re.findall(r"^```bash\n(.*?)^```", page.read_text(), flags=re.M | re.S):
            lines = block.replace("\\\n", " ").splitlines()
            found |= dict.fromkeys(line for line in lines if re.match(r"make test_matrix .*AXES=", line))
    return [shlex.split(line, comments=True)[2:] for line in found]


@pytest.mark.parametrize("arguments", documented(), ids=lambda arguments: arguments[0])
def test_a_documented_matrix_is_planned(
    tmp_path: Path, warm_python: WarmPython, arguments: list[str]
) -> None:
    script = ROOT / "scripts" / "test_matrix_dry_run.py"
    done = warm_python.run([script, *arguments, f"O={tmp_path}"], cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^matrix: \d+ runs of ", done.stdout, flags=re.M)
