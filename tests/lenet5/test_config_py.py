"""A training from a run directory reads its `config.py`; if that was edited by hand, it is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kharness.config.assignment import Assignment, Origin
from kharness.config.generate import write_config
from kharness.config.tree import Tree
from monitoring import read_records

SHORT = {"MAX_STEPS": "2", "DEVICE_CPU": "y"}


def train(root: Path, run: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "importtime", str(root / "lenet5" / "train.py"), "--run-dir", str(run)]
    return subprocess.run(command, cwd=run, capture_output=True, text=True, check=False)


def imported(stderr: str) -> set[str]:
    return {
        line.rpartition("|")[2].strip() for line in stderr.splitlines() if line.startswith("import time:")
    }


def test_a_training_from_a_run_directory_imports_no_kconfiglib(root: Path, tmp_path: Path) -> None:
    tree = Tree.load(root)
    layer = [Assignment(name, value, Origin("matrix axis", "test")) for name, value in SHORT.items()]
    write_config(tree.resolve(layer), tmp_path, root=root)
    written = {path: path.read_bytes() for path in tmp_path.iterdir()}
    done = train(root, tmp_path)
    assert done.returncode == 0, done.stderr
    names = imported(done.stderr)
    assert {"torch", "kharness.config.options"} <= names
    assert "kconfiglib" not in names
    assert {path: path.read_bytes() for path in written} == written
    steps = [
        record["global_step"] for record, _ in read_records(tmp_path / "metrics.jsonl") if "lr" in record
    ]
    assert steps == [1, 2]

    config = tmp_path / ".config"
    config.write_text(config.read_text().replace("CONFIG_SEED=1\n", "CONFIG_SEED=2\n"))
    done = train(root, tmp_path)
    said = [line for line in done.stderr.splitlines() if not line.startswith("import time:")]
    assert (done.returncode, said) == (
        2,
        [
            f"error: {tmp_path}/.config was edited by hand: SEED=2 (config.py has 1)",
            f"hint: undo that, or take the values of .config: make olddefconfig O={tmp_path}",
        ],
    )
    assert "torch" not in imported(done.stderr)
