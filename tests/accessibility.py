"""Accessibility violations that axe-core finds in a page.

tests/data/axe-core/ has axe-core 4.14.1 (MPL-2.0) as npm has it: the rules of WCAG 2 and the usual practices.
"""

from __future__ import annotations

from pathlib import Path

from .browser import Browser

AXE = Path(__file__).resolve().parent / "data" / "axe-core" / "axe.min.js"

# What is less is an advice; these keep somebody from using the page.
SERIOUS = ("serious", "critical")

# Of what passes nothing is gathered but one element, and nobody reads the selectors of any.
_RUN = """axe.run({resultTypes: ["violations"], selectors: false}).then(found => found.violations.map(
    one => [one.impact, `${one.id}: ${one.help}: ${one.nodes[0].html.slice(0, 200)}`]))"""


def violations(browser: Browser) -> list[str]:
    """Return the serious violations of the page as it is now, each with the first element that has it."""
    if not browser.value("'axe' in window"):
        browser.value(AXE.read_text(encoding="utf-8"))
    found = browser.call("Runtime.evaluate", expression=_RUN, awaitPromise=True, returnByValue=True)
    assert "exceptionDetails" not in found, found
    return [what for impact, what in found["result"]["value"] if impact in SERIOUS]
