"""A training from a run directory reads its `config.py`; if that was edited by hand, it is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kharness.config.assignment import Assignment, Origin
from kharness.config.generate import write_config
from kharness.config.tree import Tree
from monitoring import read_records

from ..few_digits import environment_of
from ..warm_python import WarmPython

SHORT = {"MAX_STEPS": "2", "DEVICE_CPU": "y", "DATASET_FEW_DIGITS": "y"}


# Runs a program in an interpreter that has torch and nothing of ours, and names what that imports.
NAMING_IMPORTS = """
import runpy, sys
_, *sys.argv = sys.argv
sys.modules.pop("kconfiglib", None)
assert not any(name.startswith("kharness") for name in sys.modules)
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_training_from_a_run_directory_imports_no_kconfiglib(
    few_digits: Path, warm_torch: WarmPython, tmp_path: Path
) -> None:
    tree = Tree.load(few_digits)
    layer = [Assignment(name, value, Origin("matrix axis", "test")) for name, value in SHORT.items()]
    write_config(tree.resolve(layer), tmp_path, root=few_digits)
    written = {path: path.read_bytes() for path in tmp_path.iterdir()}
    script = few_digits / "lenet5" / "train.py"
    done = warm_torch.run(
        ["-c", NAMING_IMPORTS, script, "--run-dir", tmp_path], cwd=tmp_path, env=environment_of(few_digits)
    )
    assert done.returncode == 0, done.stderr
    assert "kharness.config.options" in done.stderr.split()
    assert "kconfiglib" not in done.stderr.split()
    assert {path: path.read_bytes() for path in written} == written
    steps = [
        record["global_step"] for record, _ in read_records(tmp_path / "metrics.jsonl") if "lr" in record
    ]
    assert steps == [1, 2]

    config = tmp_path / ".config"
    config.write_text(config.read_text().replace("CONFIG_SEED=1\n", "CONFIG_SEED=2\n"))
    command = [sys.executable, "-X", "importtime", str(script), "--run-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert (done.returncode, said) == (
        2,
        [
            f"error: {tmp_path}/.config was edited by hand: SEED=2 (config.py has 1)",
            f"hint: undo that, or take the values of .config: make olddefconfig O={tmp_path}",
        ],
    )
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert ("kharness.config.options" in imported, "torch" in imported) == (True, False)
