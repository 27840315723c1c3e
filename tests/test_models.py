"""Every model's train.py is read in five minutes: one page, few names of ours, what it trains in sight."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODELS = sorted(path.parent.name for path in ROOT.glob("*/model.py"))
MOST_LINES, MOST_NAMES = 130, 8
OURS = ("kharness", "monitoring", *MODELS)


def names_of_ours(script: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in OURS]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            found += [alias.name for alias in node.names]
    return found


@pytest.mark.parametrize("model", MODELS)
def test_train_py_is_one_page_with_few_names_of_ours(model: str) -> None:
    script = ROOT / model / "train.py"
    assert len(script.read_text().splitlines()) <= MOST_LINES
    names = names_of_ours(script)
    assert len(names) <= MOST_NAMES, names
    assert "open_training" in names, "what trainings do alike is in kharness.training.opening"


@pytest.mark.parametrize("model", MODELS)
def test_model_is_a_package_whose_modules_are_found_beside_its_script(model: str, tmp_path: Path) -> None:
    """The script of another checkout takes that checkout's modules, from any folder and without settings."""
    assert (ROOT / model / "__init__.py").is_file()
    other = tmp_path / "checkout" / model
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "beside.py").write_text("WHERE = __file__\n")
    (other / "train.py").write_text(
        "from kharness.config.options import begin_script\n"
        "ROOT = begin_script(__file__, 'imported', about='')\n"
        f"from {model}.beside import WHERE\n"
        "print(ROOT, WHERE)\n"
    )
    command = [sys.executable, str(other / "train.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(tmp_path / "checkout"), str(other / "beside.py")]
