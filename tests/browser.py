"""Headless Chromium with one tab, driven through the pipes of its debugging protocol: no driver, no port."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .waiting import wait_until

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
needs_browser = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")

NO_JSON = """if (typeof found === "function" || (found && typeof found === "object"
    && ![Object.prototype, Array.prototype, null].includes(Object.getPrototypeOf(found))))
    throw new TypeError(`what is waited for is no JSON: ${Object.prototype.toString.call(found)}`);"""


class Browser:
    """Chromium with one tab; commands and events are JSON between null bytes, on its descriptors 3 and 4."""

    def __init__(self, profile: Path) -> None:
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        redirect = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        flags = ["--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}"]
        # Else each page that is opened has a process of its own: a quarter of the CPU time of pages' tests.
        flags += ["--renderer-process-limit=1", "--disable-site-isolation-trials"]
        self._process = subprocess.Popen(
            ["bash", "-c", redirect, str(CHROMIUM), *flags, "about:blank"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read)
        os.close(write)
        self._buffer = b""
        self._last = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._last:
            self.events.append(answer)
        assert "error" not in answer, answer
        return answer["result"]

    def open(self, url: str) -> None:
        """Open a page; the events from its beginning on are in `events`."""
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, expression: str) -> Any:
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, expression: str, what: str = "") -> Any:
        """The first true value of an expression; while a page is loading it may not be computable.

        What is no JSON, such as a node of the page, is refused at once: it would arrive here as {}, or not.
        """
        tried = (
            f"(() => {{ let found; try {{ found = ({expression}) }} catch {{ return undefined }} {NO_JSON} "
            "return found })()"
        )
        return wait_until(lambda: self.value(tried), what or expression)

    def press(self, key: str) -> None:
        """Press and release a key, as a person does."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **(text if kind == "keyDown" else {}))

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at a place, move it to another, release it."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        for kind, place in (
            *(("mouseMoved", start), ("mousePressed", start)),
            *(("mouseMoved", middle), ("mouseMoved", end), ("mouseReleased", end)),
        ):
            button = "none" if kind == "mouseMoved" and place == start else "left"
            x, y = place
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def screenshot(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def forget(self) -> None:
        """Leave the page, and be as large and as bright as at the beginning."""
        self.call("Emulation.clearDeviceMetricsOverride")
        self.call("Emulation.setEmulatedMedia", features=[])
        self.open("about:blank")
        self.events.clear()

    def close(self) -> None:
        self._session = ""
        with contextlib.suppress(AssertionError):  # it may end before it has answered
            self.call("Browser.close")
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._from], [], [], 600)[0], "the browser does not answer"
            read = os.read(self._from, 1 << 16)
            assert read, "the browser has ended"
            self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message
