"""A folder of runs, the server as its user starts it, and a browser: one of each for a module."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from monitoring import Run
from monitoring.journal.alerts import Alerts

from ...browser import Browser
from ...ports import free_port

SPIKE_STEP, SPIKE = 12_345, 50.0
MARKUP = "<img src=x onerror=document.title='owned'>"
MODEL = {"name": "none", "parameters": 0, "architecture": {}}

WIDE = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}

NAMES = "[...document.querySelectorAll('.runs tbody td.pinned a')].map(one => one.innerText)"
CHART = "kharness.shown.board.charts.get('train_loss')"
READY = f"{CHART}?.plot && {CHART}.lines.length"

BACK = """document.querySelectorAll("dialog[open]").forEach(one => one.close());
document.activeElement.blur();
history.pushState(null, "", location.pathname);
dispatchEvent(new PopStateEvent("popstate"));"""


@dataclass
class Server:
    """`python -m monitoring.web`, which may be killed and started again on its port."""

    folders: list[Path]
    state: Path
    options: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "monitoring.web", *map(str, self.folders), "--no-browser"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port), *self.options],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_STATE_HOME": str(self.state)},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("dashboard: http"), line
        self.url = line.split()[1]

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    @property
    def token(self) -> str:
        return self.url.partition("?token=")[2]

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        cookie: bool = True,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and content of an answer; the path is sent letter for letter."""
        address = urlsplit(self.root)
        connection = http.client.HTTPConnection(str(address.hostname), self.port, timeout=60)
        sent = {"cookie": f"kharness_dashboard_{self.port}={self.token}"} if cookie else {}
        if method == "POST":
            sent["origin"] = self.root
        connection.request(method, path, body, {**sent, **(headers or {})})
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, content

    def json(self, path: str, content: object = None) -> Any:
        method, body = ("GET", None) if content is None else ("POST", json.dumps(content).encode())
        status, _, data = self.ask(path, method=method, body=body)
        assert status == 200, data
        return json.loads(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results: a long run with one spike, one that failed with an alert, one whose names are markup."""
    results = tmp_path_factory.mktemp("page") / "results"
    with opened(results / "spiky", config={"OPTIMIZER": "sgd", "LEARNING_RATE": 0.1, "SEED": 1}) as run:
        run.start(model=MODEL, training={"num_steps": 20_000, "batch_size": 32})
        for step in range(1, 20_001):
            run.log_step(step, train_loss=SPIKE if step == SPIKE_STEP else 1.0, lr=0.1)
        run.log_eval(20_000, split="val", val_loss=0.5, val_accuracy=0.9)
    failed = opened(results / "failed", config={"OPTIMIZER": "adamw", "LEARNING_RATE": 0.01, "SEED": 1})
    for step in range(1, 11):
        failed.log_step(step, train_loss=float("nan") if step == 7 else 2.0)
    failed.finish("failed")
    alerts = Alerts(results / "failed")
    alerts.fire("nonfinite", "error", "train_loss is not a finite number: at step 7", global_step=7)
    alerts.close()
    with opened(results / "marked", name=MARKUP, config={"OPTIMIZER": MARKUP, "LEARNING_RATE": 0.1}) as run:
        run.log_step(1, **{MARKUP: 1.0, "train_loss": 3.0})
    (results / "marked" / "said.log").write_text(f"\x1b[31m{MARKUP}\x1b[0m\nall is well\n")
    return results


def opened(directory: Path, *, config: Mapping[str, object], name: str = "") -> Run:
    """A run without an agent."""
    return Run(directory, name=name or directory.name, project="page", config=config, agent=False)


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    started = Server([folder], tmp_path_factory.mktemp("state"))
    started.start()
    yield started
    started.kill()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Browser]:
    """The page of all runs, opened by the address that the terminal has printed.

    It is loaded once for all tests that do not leave it; the next one comes back to it, as by a link.
    """
    browser.call("Emulation.setDeviceMetricsOverride", **WIDE)
    if browser.value("location.origin") == server.root:
        browser.value(BACK)
    else:
        browser.open(server.url)
    browser.until(f"{NAMES}.length >= 3")
    yield browser
    # nothing was refused by the policy, and no script failed
    bad = [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"]
    assert bad == []
    assert [event for event in browser.events if "Content Security" in json.dumps(event)] == []
    assert browser.value("document.title") != "owned"


def show(page: Browser, address: str) -> None:
    page.value(f"location.hash = {address!r}")


def click(page: Browser, selector: str, text: str = "", meanwhile: Callable[[], object] = str) -> None:
    """Click the first element with a text, in its middle, with the mouse; `meanwhile` it is pressed."""
    found = f"[...document.querySelectorAll({selector!r})].find(one => one.innerText.includes({text!r}))"
    page.until(f"{found} !== undefined", f"{selector} {text}")
    page.value(f"{found}.scrollIntoView({{block: 'nearest'}})")
    box: dict[str, float] = page.value(f"{found}.getBoundingClientRect().toJSON()")
    place = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    for kind, then in (("mousePressed", meanwhile), ("mouseReleased", str)):
        page.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)
        then()


def type_text(page: Browser, text: str) -> None:
    page.call("Input.insertText", text=text)
