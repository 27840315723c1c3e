"""Sources that are edited while a matrix is under way: trained from a copy of the planned ones, or marked."""

from __future__ import annotations

import json
import subprocess

from .conftest import Checkout, attempts, behavior


def test_cells_train_from_what_was_planned_or_are_marked(checkout: Checkout) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    (checkout.root / ".gitignore").write_text("results\n")
    commit = [*git, "commit", "-qm", "all"]
    for command in (["git", "init", "-q"], ["git", "add", "."], commit):
        subprocess.run(command, cwd=checkout.root, check=True)
    train = checkout.root / "pretender/train.py"
    original = train.read_text()
    twice = ("CONFIG_MATRIX_AXES=SEED=1|2", behavior("once-crash@2"))

    assert checkout.run("test_matrix", *twice, "CONFIG_MATRIX_SNAPSHOT=y")[0] == 3
    planned = json.loads((checkout.latest / "matrix.json").read_text())
    sources = f"results/{checkout.latest.name}/.sources"
    typed = f"pretender/train.py --run-dir results/{checkout.latest.name}/seed-2"
    assert planned["cells"][1]["command"].startswith(f"PYTHONPATH={sources}/lib ")
    assert planned["cells"][1]["command"].endswith(f" {sources}/{typed}")
    train.write_text("raise SystemExit('edited')\n")
    code, output = checkout.run("continue")
    assert code == 0, output
    assert attempts(checkout.latest / "seed-2", "cause", "exit_code") == [("error", 1), (None, 0)]
    known = json.loads((checkout.latest / "seed-2/run.json").read_text())["attempts"]
    assert [attempt["git"] for attempt in known] == [planned["git"]]
    assert "other sources" not in checkout.run("status")[1]

    train.write_text(original)
    assert checkout.run("test_matrix", *twice)[0] == 3
    train.write_text(f"{original}\n# edited\n")
    code, output = checkout.run("continue")
    assert code == 0, output
    said = "began with other sources than the matrix was planned with"
    assert f"1 of 2 runs {said}: seed-2" in output
    assert f"  seed-2: {said}" in checkout.run("status")[1].splitlines()
    assert json.loads((checkout.latest / "summary.json").read_text())["other_sources"] == ["seed-2"]
