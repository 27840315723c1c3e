"""Screenshots of a page that is served, for the documentation: python -m tests.screenshots < list of them.

The list is JSON: `path` of a PNG, `address`, an expression that is true once it is `ready`, `width` and
`height`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from .browser import CHROMIUM, Browser

LIGHT = [{"name": "prefers-color-scheme", "value": "light"}]


def main(wanted: list[dict[str, Any]]) -> int:
    """0 once all are written; 2 without a browser."""
    if not CHROMIUM:
        print("error: Chromium is not installed\nhint: make check INSTALL=y installs it", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(Path(profile))
        try:
            browser.call("Emulation.setEmulatedMedia", features=LIGHT)
            browser.call("Emulation.setScrollbarsHidden", hidden=True)
            for one in wanted:
                size = {"width": one["width"], "height": one["height"]}
                browser.call("Emulation.setDeviceMetricsOverride", **size, deviceScaleFactor=1, mobile=False)
                browser.open("about:blank")  # the address of the same page loads nothing anew
                browser.open(one["address"])
                browser.until(one["ready"])
                browser.value("requestAnimationFrame(() => setTimeout(() => { window.isPainted = true; }))")
                browser.until("window.isPainted")
                browser.screenshot(Path(one["path"]))
        finally:
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
