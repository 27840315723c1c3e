"""Opens dashboards in Chromium for run_pages: prints what each took, as JSON.

python benchmarks/in_browser/dashboards.py compare|long|overlaid|listed FOLDER ROUNDS SECONDS
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # it has the tests' browser

from monitoring import Run
from tests.browser import CHROMIUM, Browser
from tests.ports import free_port

OURS = "[...(window.kharness?.shown?.board?.charts.values() ?? [])].some(one => one.plot && one.lines.length)"
CHART = "kharness.shown.board.charts.get('train_loss')"
PAGES = {
    "kharness": OURS,
    "Trackio": "[...document.querySelectorAll('.vega-embed canvas')].some(one => one.width)",
    "TensorBoard": "document.querySelector('scalar-card line-chart .series-view canvas, line-chart path')",
}

# A look at each picture that the browser paints, from the page's beginning on.
WATCH = """(() => { const look = () => { let seen = false;
    try { seen = Boolean(%s); } catch { /* it is being loaded */ }
    if (seen) window.seen ??= performance.now(); else requestAnimationFrame(look); };
    look(); })()"""

Found = dict[str, Any]


def main(argv: list[str]) -> int:
    if not CHROMIUM:
        sys.exit("Chromium is not installed")
    what, folder, rounds, seconds = argv[0], Path(argv[1]), int(argv[2]), float(argv[3])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        browser = Browser(Path(name) / "chromium")
        browser.call("Emulation.setDeviceMetricsOverride", **WINDOW)
        try:
            print(json.dumps(LOOKS[what](browser, folder, rounds, seconds)))
        finally:
            browser.close()
    return 0


WINDOW: Found = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}


def compare(browser: Browser, folder: Path, rounds: int, _: float) -> Found:
    """The three in turns: a new page, then the same once more, with what the browser has kept.

    Where there are several rounds, the servers have been asked once before.
    """
    with Ours(folder) as ours, Others(folder) as others:
        addresses = {"kharness": ours.url, **others.urls}
        for who, address in addresses.items() if rounds > 1 else ():
            seen(browser, address, PAGES[who])
        found: Found = {who: {"first": [], "again": []} for who in addresses}
        for _ in range(rounds):
            for who, address in addresses.items():
                browser.call("Network.clearBrowserCache")
                found[who]["first"].append(seen(browser, address, PAGES[who]))
                found[who]["again"].append(seen(browser, address, PAGES[who]))
    return found


def long(browser: Browser, folder: Path, rounds: int, seconds: float) -> Found:
    """Runs of a million steps: never opened, zoomed, all at once, beside one that records once a second.

    The server's load is that of so many seconds.
    """
    found: Found = {}
    names = sorted(path.name for path in folder.iterdir())
    for _ in range(rounds):
        with Ours(folder) as ours:
            ours.ready(browser)
            address = f"{ours.url}#run={folder.name}/{names[0]}"
            add(found, "never opened: first chart, ms", seen(browser, address, OURS))
    with Ours(folder) as ours:
        ours.ready(browser)
        seen(browser, f"{ours.url}#run={folder.name}/{names[0]}", OURS)
        began = time.perf_counter()
        browser.until(f"{CHART}?.lines.length && !{CHART}.lines[0].coarse")
        add(found, "never opened: all read, s", time.perf_counter() - began)
        redraw = "kharness.shown.board.draw(); await new Promise(done => setTimeout(done))"
        zoom = f"""{CHART}.callbacks.zoom([5000 + 1000 * %d, 5200 + 1000 * %d]);
            while (!({CHART}.lines[0].exact)) await new Promise(done => setTimeout(done))"""
        for number in range(rounds):
            add(found, "redraw of the charts in sight, ms", timed(browser, redraw))
            add(found, "zoom to records, ms", timed(browser, zoom % (number, number)))
            browser.value(f"{CHART}.callbacks.zoom(null)")
            browser.until(f"!{CHART}.lines[0].exact")
        chosen = "&".join(f"sel={folder.name}/{name}" for name in names)
        seen(browser, f"{ours.url}#{chosen}", OURS)
        browser.until(f"{CHART}?.lines.length === {len(names)} && {CHART}.lines.every(line => !line.coarse)")
        add(found, "server with all of them read, MB", ours.memory())
        with recording(folder / "live"):
            browser.until("kharness.store.rows.size === " + str(len(names) + 1))
            browser.value(f"location.hash = 'run={folder.name}/live'")
            browser.until(f"{CHART}?.lines.length")
            add(found, "server at a record a second, % of a core", ours.load(seconds))
    return found


def overlaid(browser: Browser, folder: Path, rounds: int, _: float) -> Found:
    """All runs over each other, none of them opened before."""
    found: Found = {}
    names = sorted(path.name for path in folder.iterdir())
    chosen = "&".join(f"sel={folder.name}/{name}" for name in names)
    whole = f"{CHART}.plot && {CHART}.lines.length === {len(names)}"
    for _ in range(rounds):
        with Ours(folder) as ours:
            ours.ready(browser)
            address = f"{ours.url}#find=train_loss&{chosen}"
            add(found, "never opened: all lines drawn, ms", seen(browser, address, whole))
            add(found, "again: all lines drawn, ms", seen(browser, address, whole))
    return found


def listed(browser: Browser, folder: Path, rounds: int, _: float) -> Found:
    """The table: by a server that has read the folder, and how long it reads."""
    found: Found = {}
    count = len(list(folder.iterdir()))
    whole = f"kharness.store.rows.size === {count} && document.querySelector('.runs tbody .pinned')"
    for _ in range(rounds):
        began = time.perf_counter()
        with Ours(folder) as ours:
            ours.ready(browser)
            add(found, "a new server has read them, s", time.perf_counter() - began)
            add(found, "listed, ms", seen(browser, ours.url, whole))
            add(found, "first chart, ms", seen(browser, ours.url, OURS))
            middle = "(r => (r.started + r.updated) / 2)([...kharness.store.live.values()][0])"
            moment = f"""const at = {middle}; kharness.change({{ at }});
                while (kharness.store.past !== at) await new Promise(done => setTimeout(done))"""
            add(found, "as they stood at a moment, ms", timed(browser, moment))
    return found


LOOKS: dict[str, Callable[[Browser, Path, int, float], Found]] = {
    "compare": compare,
    "long": long,
    "overlaid": overlaid,
    "listed": listed,
}


def add(found: Found, name: str, value: float) -> None:
    found.setdefault(name, []).append(value)


def seen(browser: Browser, address: str, what: str) -> float:
    """Milliseconds from opening an address until something is seen."""
    browser.open("about:blank")
    script = browser.call("Page.addScriptToEvaluateOnNewDocument", source=WATCH % what)
    browser.open(address)
    taken = float(browser.until("window.seen"))
    browser.call("Page.removeScriptToEvaluateOnNewDocument", **script)
    return taken


def timed(browser: Browser, action: str) -> float:
    """Milliseconds of statements in the page."""
    code = (
        f"(async () => {{ const began = performance.now(); {action}; return performance.now() - began }})()"
    )
    found = browser.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in found, found
    return float(found["result"]["value"])


class Ours:
    """`python -m monitoring.web`."""

    def __init__(self, folder: Path) -> None:
        self._state = tempfile.TemporaryDirectory()
        environment = {**os.environ, "XDG_STATE_HOME": self._state.name}
        command = [sys.executable, "-m", "monitoring.web", str(folder), "--port", "0", "--no-browser"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().split()[1]

    def __enter__(self) -> Ours:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._state.cleanup()

    def ready(self, browser: Browser) -> None:
        """Wait until every run is in the table, with no chart."""
        browser.open("about:blank")
        browser.open(f"{self.url}#sel=")
        browser.until("kharness.store.isComplete")

    def memory(self) -> float:
        return float(psutil.Process(self._process.pid).memory_info().rss) / 1e6

    def load(self, seconds: float) -> float:
        """CPU time of so many seconds, in percent of a core."""
        process = psutil.Process(self._process.pid)
        before = process.cpu_times()
        time.sleep(seconds)
        after = process.cpu_times()
        return 100 * (after.user + after.system - before.user - before.system) / seconds


class Others:
    """The servers of TensorBoard and Trackio."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        program = str(Path(sys.executable).with_name("tensorboard"))
        tensorboard = [program, "--logdir", str(folder), "--port", str(port)]
        shown = "import trackio; trackio.show(project='bench', open_browser=False)"
        told = subprocess.Popen(
            [sys.executable, "-u", "-c", shown], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._processes = [told, subprocess.Popen(tensorboard, stderr=subprocess.DEVNULL, text=True)]
        assert told.stdout is not None
        line = next(line for line in told.stdout if "http" in line)
        found = re.search(r"http://[\w.:/?=-]+", line)
        assert found is not None, line
        self.urls = {"Trackio": found[0], "TensorBoard": f"http://localhost:{port}/"}
        threading.Thread(target=told.stdout.read, daemon=True).start()

    def __enter__(self) -> Others:
        for address in self.urls.values():
            words = [
                "curl",
                "-sfo",
                "/dev/null",
                "--retry-connrefused",
                "--retry",
                "60",
                "--retry-delay",
                "1",
            ]
            subprocess.run([*words, address], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


class recording:
    """A run that records once a second."""

    def __init__(self, directory: Path) -> None:
        self._run = Run(directory, name="live", project="bench", config={}, agent=False)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def _record(self) -> None:
        step = 0
        while not self._over.wait(1.0):
            step += 1
            self._run.log_step(step, train_loss=1 / step, lr=0.1)

    def __enter__(self) -> None:
        self._run.start(model={"name": "m"}, training={"num_steps": 10**6})
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._run.finish("interrupted")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
