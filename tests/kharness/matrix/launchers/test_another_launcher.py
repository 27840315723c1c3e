"""One file and one Kconfig entry add a launcher; a matrix begun with one is continued with another."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..conftest import Checkout

ENTRY = """
config LAUNCHER_SPOOL
	bool "A queue in a folder"

endchoice

config LAUNCHER_SPOOL_FOLDER
	string "Folder of the queue"
	default ""
	depends on LAUNCHER_SPOOL
	help
		Where jobs are put.
		Affects: machine, matrix
"""


class Extended:
    """A checkout with its own copy of lib/, to which the launcher was added, and the queue itself."""

    def __init__(self, checkout: Checkout, root: Path, folder: Path) -> None:
        self.checkout = checkout
        self.folder = folder
        folder.mkdir()
        own = checkout.root / "lib"
        # Compiled modules too, but for those that another process just writes.
        ignored = shutil.ignore_patterns("Kconfig", "*.pyc.*")
        shutil.copytree(root / "lib", own, dirs_exist_ok=True, ignore=ignored)
        shutil.copy(root / "tests/data/spool_launcher/spool.py", own / "kharness/matrix/launchers")
        kconfig = own / "kharness/matrix/Kconfig"
        before, rest = kconfig.read_text().split('bool "Processes on this machine"\n', 1)
        rest = rest.replace("\nendchoice\n", ENTRY, 1)
        rest = rest.replace(
            'default "local" if LAUNCHER_LOCAL\n',
            'default "local" if LAUNCHER_LOCAL\n\tdefault "spool" if LAUNCHER_SPOOL\n',
        )
        kconfig.write_text(f'{before}bool "Processes on this machine"\n{rest}')
        self.environment = {"PYTHONPATH": str(own)}

    @property
    def launched_by(self) -> dict[str, list[str]]:
        """The launchers of each cell's attempts."""
        return {
            path.parent.name: [
                attempt["job"]["launcher"] for attempt in json.loads(path.read_text())["attempts"]
            ]
            for path in sorted(self.checkout.latest.glob("*/status.json"))
        }


@pytest.fixture
def extended(checkout: Checkout, root: Path, tmp_path: Path) -> Iterator[Extended]:
    made = Extended(checkout, root, tmp_path / "spool")
    queue = subprocess.Popen(
        [sys.executable, root / "tests/data/spool_launcher/folder_queue.py", made.folder]
    )
    yield made
    queue.kill()
    queue.wait()


def test_a_matrix_on_somebody_elses_queue_with_drop_ins_that_fail(extended: Extended) -> None:
    """A graph of one's own and the launcher's end: each is a warning, and the report is written."""
    own = extended.checkout.root / "lib/kharness"
    (own / "report/graphs/of_mine.py").write_text(
        "def numbers(summary): ...\ndef draw(summary): raise ZeroDivisionError('no runs')\n"
    )
    with (own / "matrix/launchers/spool.py").open("a") as module:
        module.write("\n\ndef fails(self):\n    raise ConnectionError('no queue')\n\n\nSpool.close = fails\n")
    code, output = extended.checkout.run(
        "test_matrix",
        "LAUNCHER=spool",
        f"CONFIG_LAUNCHER_SPOOL_FOLDER={extended.folder}",
        "CONFIG_REPORT_GRAPHS=y",
        "JOBS=2",
        environment=extended.environment,
    )
    assert code == 0, output
    warnings = [line for line in output.splitlines() if line.startswith("warning:")]
    assert warnings == [
        "warning: launcher spool: ConnectionError: no queue",
        "warning: graph of_mine: ZeroDivisionError: no runs",
    ]
    latest = extended.checkout.latest
    for name in ("summary.md", "report.html", "summary.json"):
        assert "ZeroDivisionError: no runs" in (latest / name).read_text().replace("\\", "")
    assert (latest / "graphs/training_loss.png").exists()
    assert set(extended.checkout.statuses().values()) == {"complete"}
    assert list(extended.launched_by.values()) == [["spool"]] * 4


def test_a_matrix_begun_on_the_queue_is_finished_locally(
    extended: Extended, wait_until: Callable[[Callable[[], bool]], None]
) -> None:
    checkout = extended.checkout
    arguments = ["LAUNCHER=spool", f"CONFIG_LAUNCHER_SPOOL_FOLDER={extended.folder}", "CONFIG_BEHAVIOR=held"]
    arguments += ["CONFIG_MATRIX_AXES=SEED=1|2"]
    runner = checkout.start("test_matrix", *arguments, env={**os.environ, **extended.environment})
    journal = checkout.root / "results/latest/seed-1/metrics.jsonl"
    wait_until(lambda: journal.exists() and '"step"' in journal.read_text())
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=600)
    assert checkout.statuses() == {"seed-1": "interrupted", "seed-2": "pending"}
    (checkout.root / "let-go").touch()
    code, output = checkout.run("continue", "LAUNCHER=local", environment=extended.environment)
    assert code == 0, output
    assert checkout.statuses() == {"seed-1": "complete", "seed-2": "complete"}
    assert extended.launched_by == {"seed-1": ["spool", "local"], "seed-2": ["local"]}
