"""The browser that tests drive says what it cannot do, rather than wait for it."""

from __future__ import annotations

import pytest

from .browser import Browser, needs_browser

pytestmark = needs_browser


def test_what_is_no_json_is_not_waited_for(browser: Browser) -> None:
    for expression, kind in (
        *(("document.body", "HTMLBodyElement"), ("document.querySelectorAll('body')", "NodeList")),
        *(("fetch", "Function"), ("new Map([[1, 2]])", "Map"), ("Promise.resolve(1)", "Promise")),
    ):
        with pytest.raises(AssertionError, match=rf"no JSON: \[object {kind}\]"):
            browser.until(expression)
    assert browser.until("document.body && { tag: document.body.tagName }") == {"tag": "BODY"}
    assert browser.until("[document.body.childElementCount, null]") == [0, None]
