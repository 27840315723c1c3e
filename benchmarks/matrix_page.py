"""The page of a matrix of 1,000 cells in Chromium, beside its report.html, which holds much of the same.

python benchmarks/matrix_page.py [CELLS [ROUNDS]]

Seconds from opening the address until all cells and verdicts are painted; each round opens both. The server
has found the runs before. Journals are synthetic (benchmarks/report_matrix.py) and short: no page reads them
whole.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from kharness.report.report import write_files
from kharness.report.summary import collect

if TYPE_CHECKING:
    from benchmarks.report_matrix import ROOT, axes_of, make_matrix
else:
    from report_matrix import ROOT, axes_of, make_matrix

STEPS = 100
SEEDS = 10

# It runs in the root of the tree, where it finds the tests' browser.
OPEN = """
import json, os, subprocess, sys, tempfile
from pathlib import Path
from tests.browser import CHROMIUM, Browser
folder, rounds, cells = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
if not CHROMIUM:
    sys.exit("Chromium is not installed")
SEEN = '''(() => {
    const look = () => {
        const isReport = location.protocol === "file:" && document.readyState === "complete";
        const isThere = isReport || document.querySelectorAll(".cells .cell").length >= CELLS;
        if (isThere) requestAnimationFrame(() => setTimeout(() => { window.seen ??= performance.now(); }));
        else requestAnimationFrame(look);
    };
    look();
})()'''.replace("CELLS", str(cells))
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
    server = subprocess.Popen(
        [sys.executable, "scripts/dashboard.py", f"RUN={folder}", "PORT=0"],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "XDG_STATE_HOME": name},
    )
    url = server.stdout.readline().split()[1]
    browser = Browser(Path(name) / "chromium")
    try:
        browser.call("Page.addScriptToEvaluateOnNewDocument", source=SEEN)
        browser.open(url)
        browser.until(f"kharness.store.isComplete && kharness.store.rows.size >= {cells}")
        matrix = next(folder.iterdir()).name
        found = {"page": [], "report.html": []}
        for _ in range(rounds):
            for what, address in (
                ("page", f"{url}#matrix={folder.name}/{matrix}"),
                ("report.html", (folder / matrix / "report.html").as_uri()),
            ):
                browser.open("about:blank")
                browser.open(address)
                found[what].append(browser.until("window.seen") / 1000)
        print(json.dumps(found))
    finally:
        browser.close()
        server.kill()
"""


def main(argv: list[str]) -> int:
    """Print medians and their ratio."""
    cells = int(argv[0]) if argv else 1000
    rounds = int(argv[1]) if len(argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "results" / "test_matrix_large"
        make_matrix(directory, axes_of(SEEDS, cells), cells, STEPS)
        write_files(collect(directory))
        command = [sys.executable, "-c", OPEN, str(directory.parent), str(rounds), str(cells)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr.strip().splitlines()[-1])
            return 0 if "not installed" in done.stderr else 1
    seconds = {what: median(times) for what, times in json.loads(done.stdout).items()}
    page, report = seconds["page"], seconds["report.html"]
    print(f"{cells} cells, {rounds} rounds: all painted after")
    print(f"page         {page:.2f} s  {page / report:.2f} of report.html")
    print(f"report.html  {report:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
