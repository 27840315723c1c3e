"""Matrices and sweeps as a person sees them, in headless Chromium."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from ...accessibility import violations
from ...browser import Browser, needs_browser
from ..report.conftest import training, write_journal, write_status
from .conftest import ROOT, Dashboard

pytestmark = needs_browser

WIDE = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}

VERDICTS = "[...document.querySelectorAll('.verdict')].map(one => one.innerText.split('\\n').join(' | '))"


@pytest.fixture
def page(browser: Browser, dashboard: Dashboard) -> Iterator[Browser]:
    """The first page, as one comes back to it: it is loaded once for all tests that do not leave it."""
    browser.call("Emulation.setDeviceMetricsOverride", **WIDE)
    if browser.value("location.origin") == dashboard.url.rpartition("/?")[0]:
        browser.value("location.hash = ''")
    else:
        browser.open(dashboard.url)
    browser.until("kharness.store.isComplete && document.querySelectorAll('.matrix-card').length === 2")
    yield browser
    # nothing was refused by the policy, and no script failed
    assert [event for event in browser.events if event["method"] == "Runtime.exceptionThrown"] == []
    assert [event for event in browser.events if "Content Security" in json.dumps(event)] == []


def show(page: Browser, address: str) -> None:
    page.value(f"location.hash = {address!r}")


def words(page: Browser, selector: str) -> str:
    page.until(f"document.querySelector({selector!r})?.innerText")
    return str(page.value(f"document.querySelector({selector!r}).innerText"))


def test_the_first_page_says_what_is_better_than_the_baseline(page: Browser) -> None:
    cards = page.value("[...document.querySelectorAll('.matrix-card')].map(one => one.innerText)")
    assert "search" in cards[0]
    assert "6 trials complete" in cards[0]
    assert "grid" in cards[1]
    assert "adam better +19.60 (" in cards[1].replace("\n", " ")
    assert "test_accuracy against sgd" in cards[1]
    assert "1 run since" in cards[1]


def test_a_matrix_opens_with_its_verdicts_and_tells_what_came_since(page: Browser) -> None:
    page.value(
        "[...document.querySelectorAll('.matrix-card a')].find(one => one.innerText === 'grid').click()"
    )
    page.until("document.querySelectorAll('.verdict').length === 2")
    assert page.value("location.hash") == "#matrix=results/grid"
    first, second = page.value(VERDICTS)
    assert first.startswith("adam | +19.60 (+")
    assert "| better |" in first
    assert second.startswith("muon | ")
    assert "no difference shown" in second
    look = words(page, "[aria-label='who is better']")
    assert "test_accuracy compared with sgd, at 3 seeds" in look
    assert "1 run has come since and is in no verdict" in look
    told = page.value("[...document.querySelectorAll('.told code')].map(one => one.innerText.split('=')[0])")
    assert told == ["make continue RUN", "make summary RUN", "make test_matrix 'CONFIG_MATRIX_AXES"]
    # the interval is where its numbers are: to the right of zero
    zero, low, high = page.value(
        "['.zero', '.range', '.range'].map((name, at) => "
        "Number(document.querySelector(`.verdict svg ${name}`).getAttribute(at === 2 ? 'x2' : 'x1')))"
    )
    assert zero < low < high
    # and all on one scale, so that zero is below zero
    zeros = "[...document.querySelectorAll('.verdict .zero')].map(one => one.getBoundingClientRect().x)"
    for width in (1440, 1100, 390):
        page.call("Emulation.setDeviceMetricsOverride", **{**WIDE, "width": width})
        page.until(f"innerWidth === {width} && new Set({zeros}).size === 1")


def test_a_cell_shows_its_status_and_opens_its_run(page: Browser) -> None:
    show(page, "matrix=results/grid")
    page.until("document.querySelectorAll('.cells .cell').length === 12")
    signs = page.value("[...document.querySelectorAll('.cells .cell')].map(one => one.innerText).join('')")
    assert signs == "✓✓✓✓✓✓✓✕✓✓✓·"
    label = page.value("document.querySelector('.cells .cell.bad').getAttribute('aria-label')")
    assert label == "optimizer-adam_seed-4: failed, <b>exit code 1</b>"
    assert "<b>exit code 1</b>" in words(page, "[aria-label='not complete']")
    page.value("document.querySelector('.cells .cell.good').click()")
    page.until("document.querySelector('h1')?.innerText === 'optimizer-sgd_seed-1'")
    page.value("history.back()")
    page.until("document.querySelectorAll('.cells .cell').length === 12")
    page.press("Escape")
    page.until("document.querySelectorAll('.matrix-card').length === 2")


def test_a_status_chosen_dims_the_others(page: Browser) -> None:
    show(page, "matrix=results/grid")
    page.until("document.querySelectorAll('.chip').length === 3")
    page.value(
        "[...document.querySelectorAll('.chip')].find(one => one.innerText.includes('failed')).click()"
    )
    page.until("document.querySelectorAll('.cells .cell:not(.dim)').length === 1")
    assert page.value("document.querySelectorAll('.cells tbody tr').length") == 1


def test_a_run_that_ends_is_seen_and_judged_by_nobody(page: Browser, dashboard: Dashboard) -> None:
    show(page, "matrix=results/grid")
    page.until("document.querySelectorAll('.verdict').length === 2")
    before = page.value(VERDICTS)
    run = dashboard.matrix.directory / "optimizer-muon_seed-4"
    write_journal(run, training([2.0, 1.0], [0.9], 0.9))
    write_status(run, "complete", None)
    page.until(
        "document.querySelector(\"[aria-label='who is better']\").innerText.includes('2 runs have come')"
    )
    after = page.value(VERDICTS)
    assert [one.split(" | ")[:3] for one in after] == [one.split(" | ")[:3] for one in before]
    assert "1 seed since" in after[1]


def test_a_sweep_has_its_best_its_history_and_what_mattered(page: Browser) -> None:
    show(page, "matrix=results/search")
    page.until("document.querySelectorAll('.sweep circle').length === 6")
    best = words(page, "[aria-label=best]")
    assert "val_loss 0.2" in best
    assert "LEARNING_RATE\n0.03" in best
    assert (
        "expect less of it; next, compare the first with the second on the test set, "
        "by seeds that the sweep has not used:\n\n"
        "make test_matrix 'CONFIG_MATRIX_AXES=LEARNING_RATE=0.01 OPTIMIZER=sgd SEED=101..105' "
        "'CONFIG_MATRIX_INCLUDE=LEARNING_RATE=0.03 OPTIMIZER=adam SEED=101..105'"
    ) in best
    rows = "[...document.querySelectorAll('[aria-label=leaderboard] tbody tr')]"
    ranks = page.value(f"{rows}.map(one => one.cells[1].innerText)")
    assert ranks == ["0.03", "0.01", "0.1", "0.003", "0.001", "3"]
    shares = page.value("[...document.querySelectorAll('.shares li')].map(one => one.innerText.split('\\n'))")
    assert [one[0] for one in shares] == ["LEARNING_RATE", "OPTIMIZER"]
    assert [one[1].endswith(" %") for one in shares] == [True, True]
    ways = page.value("document.querySelectorAll('.parallel .way').length")
    assert ways == 6
    axes = page.value("[...document.querySelectorAll('.parallel .name')].map(one => one.firstChild.data)")
    assert axes == ["LEARNING_RATE", "OPTIMIZER", "val_loss"]
    # the diverged trial does not press the others together: a half of the height is theirs
    heights = page.value(
        "[...document.querySelectorAll('.sweep circle')].map(one => Number(one.getAttribute('cy')))"
    )
    assert max(heights) - min(heights[:5]) > 80
    ends = "[...document.querySelectorAll('.sweep .axis')].map(one => one.textContent)"
    assert page.value(f"{ends}.filter(one => /[≤≥]/.test(one))") == ["≥ 1.4"] * 2  # it is beyond both axes
    click = "new MouseEvent('click', {bubbles: true, cancelable: true})"
    page.value(f"document.querySelector('.sweep svg a').dispatchEvent({click})")
    page.until("document.querySelector('h1')?.innerText === 'trial-0001'")


def test_differences_say_who_asked_for_a_value(page: Browser, dashboard: Dashboard) -> None:
    for name, rate in (("trial-0001", 0.001), ("trial-0002", 0.003)):
        run = dashboard.results / "search" / name
        (run / "config.py").write_text(f"LEARNING_RATE = {rate}\n")
        asked = [
            {"symbol": "LEARNING_RATE", "value": str(rate), "kind": "range file", "where": "my.ranges:1"}
        ]
        (run / ".config.origins.json").write_text(json.dumps({"asked": asked, "written": {}}))
    show(page, "panel=differences&sel=results/search/trial-0001&sel=results/search/trial-0002")
    text = words(page, ".added table")
    assert "0.001\nrange file my.ranges:1" in text
    assert "0.003\nrange file my.ranges:1" in text


@pytest.mark.parametrize(
    ("address", "ready"),
    [
        *(("", ".matrix-card"), ("panel=differences", "[aria-label=differences]")),
        *((f"matrix=results/{name}", ".matrix-page .card") for name in ("grid", "search")),
        *(
            (f"run=results/grid/optimizer-sgd_seed-1&tab={tab}", ".tab > *")
            for tab in ("charts", "config", "about")
        ),
    ],
)
def test_everybody_can_use_it_and_nothing_is_wider_than_the_page(
    page: Browser, address: str, ready: str
) -> None:
    show(page, address)
    page.until(f"document.querySelector('{ready}') !== null")
    for size, scheme in ((WIDE, "light"), (PHONE, "dark")):
        page.call("Emulation.setDeviceMetricsOverride", **size)
        colors = [{"name": "prefers-color-scheme", "value": scheme}]
        page.call("Emulation.setEmulatedMedia", features=colors)
        page.until(
            f"innerWidth === {size['width']} && matchMedia('(prefers-color-scheme: {scheme})').matches"
        )
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        assert violations(page) == []
    page.call("Emulation.setEmulatedMedia", features=[])


def test_axe_finds_what_is_wrong(browser: Browser) -> None:
    browser.open("data:text/html,<title>a page</title><main><h1>A page</h1><button></button></main>")
    [found] = [one for one in violations(browser) if one.startswith("button-name")]
    assert found == "button-name: Buttons must have discernible text: <button></button>"


def test_nobody_without_the_token_and_nothing_outside_is_answered(dashboard: Dashboard) -> None:
    root, token = dashboard.url.split("/?token=")
    port = root.rpartition(":")[2]
    cookie = {"cookie": f"kharness_dashboard_{port}={token}"}
    for path in ("matrices", "matrix?id=results/grid"):
        assert answer(f"{root}/api/kharness/{path}", {})[0] == 401
        assert answer(f"{root}/api/kharness/{path}", cookie)[0] == 200
    for name in ("", "results", "results/grid/..", "/etc", "results/grid/optimizer-sgd_seed-1"):
        status, text = answer(f"{root}/api/kharness/matrix?{urlencode({'id': name})}", cookie)
        assert status == 400
        assert json.loads(text)["error"] in (
            "there is no such matrix (any more)",
            "results is no longer a matrix",
        )


def answer(url: str, headers: dict[str, str]) -> tuple[int, str]:
    try:
        with urlopen(Request(url, headers=headers)) as found:
            return found.status, found.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_matrix_is_saved_as_one_file(page: Browser, dashboard: Dashboard, tmp_path: Path) -> None:
    file = tmp_path / "grid.html"
    view = "#matrix=results/grid"
    words = [
        sys.executable,
        "scripts/dashboard.py",
        f"RUN={dashboard.results}",
        f"SAVE={file}",
        f"VIEW={view}",
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("works without a server\n")
    seen = f"document.querySelectorAll('.verdict').length && {VERDICTS}"
    show(page, view)
    served = page.until(seen)
    page.open(file.as_uri())
    assert page.until(seen) == served
