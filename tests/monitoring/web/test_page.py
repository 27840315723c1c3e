"""The page as a person sees it, in headless Chromium, with runs that are really written."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from monitoring.control import ControlFile, ControlRequest
from monitoring.notes import Notes, read_notes, write_notes

from ...accessibility import violations
from ...browser import Browser, needs_browser
from ...waiting import wait_until
from .conftest import MARKUP, MODEL, SPIKE, SPIKE_STEP, Server, opened

pytestmark = needs_browser

WIDE = {"width": 1440, "height": 900, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}

NAMES = "[...document.querySelectorAll('.runs tbody td.pinned a')].map(one => one.innerText)"
CHART = "kharness.shown.board.charts.get('train_loss')"
READY = f"{CHART}?.plot && {CHART}.lines.length"


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Browser]:
    """The page of all runs, opened by the address that the terminal has printed."""
    browser.call("Emulation.setDeviceMetricsOverride", **WIDE)
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


def spike_pixels(page: Browser) -> int:
    """How many colored pixels the chart of the loss has where the top of the spike is."""
    return int(
        page.value(f"""(() => {{
            const plot = {CHART}.plot, context = plot.ctx;
            const x = Math.round(plot.valToPos({SPIKE_STEP}, 'x', true));
            const y = Math.round(plot.valToPos({SPIKE}, 'y', true));
            const data = context.getImageData(x - 3, y, 7, 8).data;
            let count = 0;
            for (let at = 0; at < data.length; at += 4) {{
                const [red, green, blue, alpha] = data.slice(at, at + 4);
                // the grid is gray; lines are not
                if (alpha > 40 && Math.max(red, green, blue) - Math.min(red, green, blue) > 25) count++;
            }}
            return count;
        }})()""")
    )


def test_the_token_leaves_the_address_and_stays_as_a_cookie(page: Browser, server: Server) -> None:
    assert page.value("location.search") == ""
    assert page.value("document.cookie") == ""  # scripts cannot read it
    page.open(f"{server.root}/")
    page.until(f"{NAMES}.length >= 3")


def test_the_list_shows_every_run_with_its_status_and_what_differs(page: Browser) -> None:
    rows = page.value("[...document.querySelectorAll('.runs tbody tr')].map(one => one.innerText)")
    text = "\n".join(rows)
    assert {"spiky", "failed"} <= set(page.value(NAMES))
    assert "failed" in text
    assert "complete" in text
    assert "1 error" in text
    heads = page.value("[...document.querySelectorAll('.runs thead th')].map(one => one.innerText)")
    assert heads[:4] == ["name", "status", "OPTIMIZER", "LEARNING_RATE"]
    assert page.value("document.querySelector('.tile.bad .value').innerText") == "1"


def test_names_with_markup_are_text(page: Browser) -> None:
    assert MARKUP in page.value(NAMES)
    assert page.value("document.querySelectorAll('img[src=x]').length") == 0
    show(page, "run=results/marked&tab=log")
    page.until("document.querySelector('.log')?.innerText.includes('all is well')")
    assert page.value("document.querySelector('.log').innerText") == f"{MARKUP}\nall is well\n"
    for tab in ("config", "about", "charts", "alerts"):
        show(page, f"run=results/marked&tab={tab}")
        page.until(f"kharness.view.tab === {tab!r}")
    assert page.value("document.querySelectorAll('img[src=x]').length") == 0


def test_a_run_opens_with_its_charts_and_goes_back(page: Browser) -> None:
    click(page, ".runs td.pinned a", "spiky")
    page.until(READY)
    assert page.value("document.querySelector('h1').innerText") == "spiky"
    page.until(f"{CHART}.lines[0].count?.reduce((one, other) => one + other) === 20000")
    assert page.value(f"{CHART}.lines[0].last.at(-1)") == 1.0
    page.press("Escape")
    page.until(f"{NAMES}.length >= 3")


def test_a_spike_is_seen_at_every_zoom_down_to_its_record(page: Browser) -> None:
    show(page, "run=results/spiky")
    page.until(READY)
    wait_until(lambda: spike_pixels(page) > 0, "the spike, with everything shown")
    for half in (5000, 500, 100):
        low, high = SPIKE_STEP - half, SPIKE_STEP + half
        page.value(f"({CHART}).callbacks.zoom([{low}, {high}])")
        page.until(f"{CHART}.lines[0]?.x.length && {CHART}.lines[0].x[0] >= {low} - 2")
        wait_until(lambda: spike_pixels(page) > 0, f"the spike, {half} steps around it")
    page.until(f"{CHART}.lines[0].exact")
    place = page.value(f"{CHART}.lines[0].x.indexOf({SPIKE_STEP})")
    assert page.value(f"{CHART}.lines[0].last[{place}]") == SPIKE


def test_the_numbers_of_an_axis_differ_however_narrow_it_is(page: Browser) -> None:
    show(page, "run=results/spiky&zoom=12340..12350")
    page.until(f"{READY} && {CHART}.range.x[0] === 12340")
    ticks = page.value(f"""[...new DOMParser().parseFromString({CHART}.svg(), 'image/svg+xml')
        .querySelectorAll('text[text-anchor=middle]')].map(one => one.textContent)""")
    assert ticks == ["12.34k", "12.342k", "12.344k", "12.346k", "12.348k", "12.35k"]


def test_a_drag_zooms_all_charts_and_a_reload_keeps_the_view(page: Browser) -> None:
    show(page, "run=results/spiky")
    page.until(READY)
    box: dict[str, float] = page.value(f"{CHART}.plot.over.getBoundingClientRect().toJSON()")
    middle = box["y"] + box["height"] / 2
    page.drag((box["x"] + 0.25 * box["width"], middle), (box["x"] + 0.75 * box["width"], middle))
    low, high = page.until("kharness.view.zoom")
    assert (low, high) == (pytest.approx(5000, abs=150), pytest.approx(15_000, abs=150))
    page.press("l")
    page.press("s")
    before = page.until(
        "location.hash.includes('smooth=0.6') && location.hash.includes('log=1') && location.hash"
    )
    page.call("Page.reload")
    page.until(READY)
    assert page.value("location.hash") == before
    assert page.value("kharness.view.zoom") == [pytest.approx(low), pytest.approx(high)]
    assert page.value("kharness.shown.board.charts.get('lr').plot.scales.x.min") == pytest.approx(low)


def test_smoothing_leaves_a_constant_as_it_is(page: Browser) -> None:
    show(page, "run=results/spiky&smooth=0.97")
    page.until("kharness.shown.board.charts.get('lr')?.lines[0]?.smooth.length")
    assert page.value("[...new Set(kharness.shown.board.charts.get('lr').lines[0].smooth)]") == [0.1]


def test_a_logarithmic_axis_of_steps_has_the_spike_and_the_first_records(page: Browser) -> None:
    show(page, "run=results/spiky&xlog=1")
    page.until(f"{READY} && {CHART}.plot.scales.x.distr === 3 && {CHART}.lines[0].x.length > 100")
    # buckets are narrow where the axis is wide
    assert page.value(f"{CHART}.lines[0].x.slice(0, 10)") == [*range(1, 11)]
    assert page.value(f"Math.max(...{CHART}.lines[0].max)") == SPIKE
    wait_until(lambda: spike_pixels(page) > 0, "the spike")
    assert page.value("document.querySelector('[aria-label=\"horizontal axis\"]').value") == "log step"


def test_a_trace_of_the_profiler_is_handed_to_perfetto(page: Browser, folder: Path) -> None:
    """It listens once it was asked; a page in its place notes what it is told."""
    (folder / "spiky/profiler").mkdir()
    (folder / "spiky/profiler/step5.trace.json").write_text('{"traceEvents": []}')
    show(page, "run=results/spiky&tab=traces")
    page.value("""window.open = (url) => { window.told = [url]; return { postMessage: (what, origin) => {
        told.push(origin, what);
        if (what === "PING") dispatchEvent(new MessageEvent("message", { data: "PONG", origin }));
    } }; }""")
    click(page, ".tab button", "open in Perfetto")
    page.until("window.told?.at(-1).perfetto !== undefined")
    assert page.value("[told[0], told[1], told[2], told.at(-1).perfetto.title]") == [
        "https://ui.perfetto.dev", "https://ui.perfetto.dev", "PING", "step5.trace.json",
    ]  # fmt: skip
    held = "new TextDecoder().decode(told.at(-1).perfetto.buffer)"
    assert page.value(held) == '{"traceEvents": []}'


def test_the_filter_selects_and_says_what_it_does_not_know(page: Browser) -> None:
    page.press("/")
    type_text(page, "optimizer=sgd and val_loss<0.6")
    page.until(f"JSON.stringify({NAMES}) === '[\"spiky\"]'")
    assert "where=" in page.value("location.hash")
    page.value("document.getElementById('where').select()")
    type_text(page, "optimiser=sgd")
    page.until("document.getElementById('where-error').innerText")
    error = page.value("document.getElementById('where-error').innerText")
    assert error == "no run has optimiser (did you mean optimizer?)"


def test_keys_choose_sort_and_help(page: Browser) -> None:
    click(page, ".runs thead button", "name")
    order = page.until(f"kharness.view.sort === 'name' && {NAMES}")
    assert order == sorted(order, key=str.lower)
    current = "document.querySelector('.runs tr.current')?.dataset.id"
    first = page.value(current)
    page.press("j")
    page.until(f"{current} !== {first!r}")
    page.press("k")
    page.until(f"{current} === {first!r}")
    drawn = page.value("kharness.shown.selected().length")
    page.press("x")
    page.until(f"kharness.shown.selected().length === {drawn - 1}")
    page.press("?")
    page.until("document.getElementById('help').open")


def test_a_hidden_run_is_hidden_in_table_charts_and_address(page: Browser) -> None:
    show(page, "sel=results/spiky&sel=results/failed&sort=name")
    page.until(f"{READY} && {CHART}.lines.length === 2")
    click(page, "[aria-label='hide failed']")
    page.until(f"{READY} && {CHART}.lines.length === 1 && !{NAMES}.includes('failed')")
    assert "hide=results/failed" in page.value("location.hash")
    assert page.value("document.querySelector('.tile.bad')") is None
    page.call("Page.reload")
    page.until(f"{READY} && {CHART}.lines.length === 1 && {NAMES}.includes('spiky')")
    assert "failed" not in page.value(NAMES)
    click(page, "button", "1 hidden")
    page.until(f"{CHART}.lines.length === 2 && {NAMES}.includes('failed')")
    assert "hide" not in page.value("location.hash")


def test_groups_have_their_mean_and_are_closed_by_a_click(page: Browser) -> None:
    show(page, "sort=name&cols=m%3Atrain_loss&where=spiky or failed")
    page.until(f"{NAMES}.length === 2")
    page.value("document.querySelector('[aria-label=\"group runs by\"]').focus()")
    page.press("b")  # the first that begins with it: by folder
    rows = "[...document.querySelectorAll('.runs tbody tr')].map(row => row.innerText.split('\\t').join(' '))"
    assert page.until(f"kharness.view.group === 'folder' && {rows}")[0] == "▾ results 2 1.5"
    show(page, page.value("location.hash").replace("group=folder", "group=o%3AOPTIMIZER"))
    page.until(f"{rows}.length === 4")
    assert [row.split(" ")[:2] for row in page.value(rows)][::2] == [["▾", "adamw"], ["▾", "sgd"]]
    click(page, ".runs tr.group button", "adamw")
    page.until(f"{NAMES}.join() === 'spiky'")
    assert "closed=adamw" in page.value("location.hash")
    page.press("j")
    page.until("document.querySelector('.runs tr.current')?.dataset.id === 'results/spiky'")
    assert violations(page) == []
    click(page, ".runs tr.group button", "adamw")
    page.until(f"{NAMES}.length === 2")


def test_an_alert_is_in_the_page_of_its_run_and_on_its_charts(page: Browser) -> None:
    show(page, "run=results/failed")
    page.until(f"{READY} && {CHART}.marks.length")
    assert page.value(f"{CHART}.marks.map(mark => mark.x)") == [7]
    assert page.value(f"{CHART}.lines[0].lost") == [7]
    show(page, "run=results/failed&tab=alerts")
    page.until("document.querySelector('.tab .plain') !== null")
    text = page.value("document.querySelector('.tab').innerText")
    assert "train_loss is not a finite number: at step 7" in text
    assert "to the end" in text  # of a run that has ended none fires now
    assert text.count("nothing found") == 4  # of the five that are documented


def test_the_tabs_of_a_run_name_files_and_directories_as_they_are_typed(page: Browser, folder: Path) -> None:
    directory = folder / "run's own"
    with opened(directory, config={"OPTIMIZER": "sgd", "SEED": 3}) as run:
        run.start(model={**MODEL, "architecture": {"fc": "Linear(1, 2)", "out": "ReLU()"}}, training={})
        for step in (1, 2):
            run.log_step(step, train_loss=1 / step)
            run.log_checkpoint(step, checkpoint_path=directory / "checkpoints" / f"{step}.pt", best=step == 1)
    (directory / "profiler").mkdir()
    for name in ("a.trace.json", "a.times.txt"):
        (directory / "profiler" / name).write_text("{}")
    try:
        show(page, "run=results/run's own&tab=checkpoints")
        page.until("document.querySelector('.tab tbody') !== null")
        assert page.value(
            "[...document.querySelectorAll('.tab tbody td:nth-child(2)')].map(one => one.innerText)"
        ) == [
            "checkpoints/2.pt",
            "checkpoints/1.ptbest",
        ]
        show(page, "run=results/run's own&tab=traces")
        page.until("document.querySelector('.tab tbody') !== null")
        assert page.value("[...document.querySelectorAll('.tab tr')].map(one => one.innerText)") == [
            "a.trace.json\t2 bytes\topen in Perfetto save",
            "a.times.txt\t2 bytes\tsave",
        ]
        show(page, "run=results/run's own&tab=about")
        page.until("document.querySelector('.tab .command code') !== null")
        line = page.value("document.querySelector('.tab .command code').innerText")
        assert line.startswith(f"cd {Path.cwd()} && {sys.executable} ")
        shown = page.value("[...document.querySelectorAll('.tab td.value')].map(one => one.innerText)")
        assert "fc: Linear(1, 2)\nout: ReLU()" in shown
        show(page, "run=results/run's own&tab=pictures")
        page.until("document.querySelector('.tab').innerText === 'It has no samples.'")
    finally:
        shutil.rmtree(directory)


def test_new_points_arrive_and_a_request_is_answered(page: Browser, folder: Path) -> None:
    run = opened(folder / "live", config={"OPTIMIZER": "sgd", "LEARNING_RATE": 0.1, "SEED": 2})
    try:
        run.start(model=MODEL, training={"num_steps": 100})
        for step in range(1, 5):
            run.log_step(step, train_loss=1 / step)
        page.until(f"{NAMES}.includes('live')")

        def another(step: int, place: str) -> None:
            """The run goes on while the mouse is pressed, which the page shows."""
            run.log_step(step, train_loss=1 / step)
            page.until(f"[...document.querySelectorAll({place!r})].some(one => one.value === {step / 100})")

        click(page, ".runs td.pinned a", "live", meanwhile=lambda: another(5, ".runs progress"))
        assert page.value("kharness.view.run") == "results/live"
        page.until(f"{READY} && {CHART}.lines[0].x.length === 5")
        for step in range(6, 21):
            run.log_step(step, train_loss=1 / step)
        page.until(f"{CHART}.lines[0].x.length === 20")
        assert page.value(f"{CHART}.lines[0].last.at(-1)") == 0.05
        page.until("document.querySelector('.run-head progress')?.value === 0.2")

        click(page, ".tabs button", "Control", meanwhile=lambda: another(21, ".run-head progress"))
        assert page.value("kharness.view.tab") == "control"
        page.until("document.querySelector('.ask input[name=log_every]') !== null")
        page.value("document.querySelector('.ask input[name=log_every]').focus()")
        type_text(page, "100")
        page.press("Enter")
        page.value("document.querySelector('.ask input[name=log_every]').form.requestSubmit()")
        control = ControlFile(run.directory, clock=lambda: 0.0)
        found = wait_until(control._new, "the request")[0]
        assert isinstance(found, ControlRequest)
        assert (dict(found.changes), found.source) == ({"log_every": 100}, "dashboard")
        page.until("document.querySelector('.tab').innerText.includes('Not answered yet')")
        run.log_control_change(
            20, control="log_every", old=1, new=100, source=found.source, request=found.name
        )
        control.answered(found)
        page.until("document.querySelector('.tab').innerText.includes('log_every: 1 → 100')")
    finally:
        run.finish("interrupted")
    page.until("document.querySelector('.run-head .pill').innerText === 'interrupted'")
    page.until("document.querySelector('.tab').innerText.includes('does not train now')")


def test_a_run_that_is_opened_before_its_first_record_has_its_charts_later(
    page: Browser, folder: Path
) -> None:
    run = opened(folder / "begins", config={"SEED": 3})
    try:
        run.start(model=MODEL, training={"num_steps": 100})
        page.until("kharness.store.rows.has('results/begins')")
        page.value("location.hash = 'run=results/begins'")
        page.until("kharness.shown.details !== null && kharness.shown.id === 'results/begins'")
        run.log_step(1, train_loss=0.5)
        page.until(f"{CHART}?.lines.length === 1")
        assert page.value(f"{CHART}.lines[0].last.at(-1)") == 0.5
    finally:
        run.finish("complete")


def test_a_server_that_is_killed_and_restarted_is_caught_up_with(
    page: Browser, server: Server, folder: Path
) -> None:
    show(page, "run=results/growing")
    run = opened(folder / "growing", config={"OPTIMIZER": "sgd"})
    try:
        run.log_step(1, train_loss=1.0)
        page.until(f"{CHART}?.lines.length === 1")
        server.kill()
        page.until("document.getElementById('live').classList.contains('off')")
        run.log_step(2, train_loss=0.5)
        run.log_step(3, train_loss=0.25)
        server.start()
        page.until(f"{CHART}.lines[0].x.length === 3")
        page.until("!document.getElementById('live').classList.contains('off')")
    finally:
        run.finish()


def test_a_run_that_is_deleted_is_a_sentence_and_the_others_go_on(page: Browser, folder: Path) -> None:
    with opened(folder / "short", config={"OPTIMIZER": "sgd"}) as run:
        run.log_step(1, train_loss=1.0)
    show(page, "run=results/short")
    page.until("document.querySelector('h1')?.innerText === 'short'")
    shutil.rmtree(folder / "short")
    page.until(
        "document.querySelector('.run-head').innerText.includes('There is no run results/short (any more).')"
    )
    show(page, "")
    page.until(f"{NAMES}.includes('spiky') && !{NAMES}.includes('short')")


def test_the_differences_between_runs(page: Browser) -> None:
    show(page, "sel=results/spiky&sel=results/failed&panel=differences")
    page.until("document.querySelectorAll('.plain tbody tr').length")
    rows = page.value(
        "[...document.querySelectorAll('.plain tbody tr')]"
        ".map(row => [...row.cells].map(cell => cell.innerText))"
    )
    assert rows[:2] == [["OPTIMIZER", "sgd", "adamw"], ["LEARNING_RATE", "0.1", "0.01"]]
    page.until("document.querySelector('.diff') !== null")
    assert page.value("document.querySelector('.diff pre').textContent").splitlines() == [
        *(
            "- LEARNING_RATE=0.1",
            "+ LEARNING_RATE=0.01",
            '- OPTIMIZER="sgd"',
            '+ OPTIMIZER="adamw"',
            "  SEED=1",
        )
    ]
    click(page, ".diff summary", "2 of 3 options differ")
    assert page.value("document.querySelector('.diff').open")
    assert violations(page) == []
    show(page, "sel=results/spiky&sel=results/marked&panel=differences")
    line = json.dumps(f"+ OPTIMIZER={json.dumps(MARKUP)}")
    page.until(f"document.querySelector('.diff pre')?.textContent.split('\\n').includes({line})")
    assert page.value("document.querySelectorAll('img[src=x]').length") == 0


def test_runs_that_differ_in_the_seed_alone_are_one_line_with_a_band(page: Browser, folder: Path) -> None:
    """The mean of both where both have a record or lie between two; the one that ended ends it."""
    losses = {1: [4.0, 2.0, 1.0], 2: [2.0, 1.0, 0.5, 0.25]}
    for seed, values in losses.items():
        with opened(folder / f"seed-{seed}", config={"OPTIMIZER": "lion", "SEED": seed}) as run:
            for step, loss in enumerate(values, 1):
                if (seed, step) != (2, 2):
                    run.log_step(step, train_loss=loss)
    show(page, "sel=results/seed-1&sel=results/seed-2&sel=results/failed")
    page.until(f"{READY} && {CHART}.lines.length === 3")
    click(page, "button", "over seeds")
    page.until(f"{CHART}.lines.length === 2")
    parts = "x: one.x, last: one.last, min: one.min, max: one.max, label: one.label"
    line = page.value(f"{CHART}.lines.map(one => ({{{parts}}})).find(one => one.label.includes('seeds'))")
    assert line == {
        "label": "lion, 2 seeds",
        "x": [1, 2, 3],
        "last": [3.0, 1.625, 0.75],
        "min": [2.0, 1.25, 0.5],
        "max": [4.0, 2.0, 1.0],
    }
    legend = page.value(f"{CHART}.legend.innerText")
    assert "lion, 2 seeds" in legend
    assert "seeds=1" in page.value("location.hash")
    click(page, "button", "over seeds")
    page.until(f"{CHART}.lines.length === 3")


def test_a_view_is_saved_by_a_name_and_opened_again(page: Browser, server: Server, folder: Path) -> None:
    address = "#where=optimizer%3Dsgd&log=1"
    show(page, address)
    page.until("kharness.view.log === '1'")
    is_open = "document.getElementById('views').open"
    click(page, "#views-button")
    page.until(is_open)
    page.value("document.querySelector('#views input').focus()")
    type_text(page, MARKUP)
    click(page, "#views button", "Save")
    saved = "[...document.querySelectorAll('#views li a')].map(one => one.innerText)"
    page.until(f"{saved}.length === 1")
    assert page.value(saved) == [MARKUP]
    assert json.loads((folder / "views.json").read_text()) == {"views": {MARKUP: page.value("location.hash")}}
    click(page, "#views button", "Close")
    show(page, "")
    page.until("kharness.view.log === ''")
    click(page, "#views-button")
    page.until(is_open)
    click(page, "#views li a")
    page.until("kharness.view.log === '1' && !document.getElementById('views').open")
    assert page.value("kharness.view.where") == "optimizer=sgd"
    for name, given, said in (
        ("x", "https://elsewhere", "that is no address of this page"),
        ("", "#", "a view's name has 1 to 80 characters"),
    ):
        content = json.dumps({"name": name, "address": given}).encode()
        status, _, answer = server.ask("/api/views", method="POST", body=content)
        assert (status, json.loads(answer)["error"]) == (400, said)
    click(page, "#views-button")
    page.until(is_open)
    click(page, "#views li button")
    page.until(f"{saved}.length === 0")
    assert json.loads((folder / "views.json").read_text()) == {"views": {}}
    click(page, "#views button", "Close")


def test_a_run_is_given_tags_and_a_note(page: Browser, folder: Path) -> None:
    """They are a file of the run, which another program may change, and conditions know them."""
    show(page, "run=results/spiky")
    click(page, ".run-head button", "add note")
    page.until("document.querySelector('.note-form') !== null")
    page.value("document.querySelector('.note-form [name=tags]').focus()")
    type_text(page, f"{MARKUP}, paper")
    page.value("document.querySelector('.note-form [name=note]').focus()")
    type_text(page, "shows the spike")
    click(page, ".note-form button", "Keep")
    page.until("document.querySelector('.run-head .note')?.innerText === 'shows the spike'")
    tags = "[...document.querySelectorAll('.run-head .pill.tag')].map(one => one.innerText)"
    assert page.value(tags) == [MARKUP, "paper"]
    assert read_notes(folder / "spiky") == Notes((MARKUP, "paper"), "shows the spike")
    write_notes(folder / "spiky", Notes(("paper",)))
    page.until(f"JSON.stringify({tags}) === JSON.stringify(['paper'])")
    show(page, "where=tags=paper")
    page.until(f"{NAMES}.join() === 'spiky'")
    heads = page.value("[...document.querySelectorAll('.runs thead th')].map(one => one.innerText)")
    assert heads[:3] == ["name", "status", "tags"]
    write_notes(folder / "spiky", Notes())
    page.until(f"{NAMES}.length === 0")


def test_the_slider_shows_runs_as_they_stood(page: Browser) -> None:
    """By keys; the address has the moment, and a run that had not begun is not there."""
    page.press("t")
    page.until("document.activeElement.type === 'range' && document.activeElement.max === '1000'")
    page.press("Home")
    page.until(f"document.body.classList.contains('past') && {NAMES}.join() === 'spiky'")  # the first of all
    assert page.value("kharness.store.rows.get('results/spiky').status") == "running"
    show(page, "run=results/spiky")
    page.until(READY)
    middle = page.value(
        "(({started, updated}) => (started + updated) / 2)(kharness.store.live.get('results/spiky'))"
    )
    show(page, f"run=results/spiky&at={middle}")
    page.until("document.querySelector('.run-head progress')?.value < 1")
    step = page.until(f"{CHART}.lines[0]?.x.at(-1) < 20000 && kharness.store.rows.get('results/spiky').step")
    assert page.value(f"{CHART}.lines[0].x.at(-1)") == step
    assert "val_loss" not in page.value("[...kharness.shown.board.charts.keys()]")
    page.call("Page.reload")
    page.until(f"{READY} && {CHART}.lines[0].x.at(-1) === {step}")
    assert violations(page) == []
    page.value("document.querySelector('.moment input').focus()")
    page.press("End")
    page.until(f"{CHART}.lines[0].x.at(-1) === 20000 && !location.hash.includes('at=')")


def test_a_view_is_saved_as_a_file_that_works_without_a_server(
    page: Browser, tmp_path: Path, server: Server
) -> None:
    """One click; names with markup are text in it, and nothing is fetched."""
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    hidden = "sel=results/failed&hide=results/failed"
    show(page, f"sel=results/spiky&sel=results/marked&smooth=0.5&{hidden}")
    page.until(f"{READY} && {CHART}.lines.length === 2")
    click(page, "#save-button")
    file = tmp_path / "kharness.html"
    wait_until(file.exists, "the file")
    assert file.stat().st_size < 10**6
    server.kill()
    try:
        page.open(file.as_uri())
        page.until(f"{READY} && {CHART}.lines.length === 2")
        assert MARKUP in page.value(NAMES)
        assert not page.value("kharness.store.rows.has('results/failed')")
        assert page.value("document.querySelectorAll('img[src=x]').length") == 0
        click(page, ".runs td.pinned a", "spiky")
        page.until(f"{READY} && {CHART}.lines.length === 1")
        assert max(page.value(f"{CHART}.lines[0].max")) == SPIKE
        show(page, "run=results/spiky&tab=config")
        page.until("document.querySelector('.tab')?.innerText.includes('OPTIMIZER')")
        fetched = [one["params"] for one in page.events if one["method"] == "Network.requestWillBeSent"]
        own = {one["request"]["url"].partition(":")[0] for one in fetched if one["documentURL"][:4] == "file"}
        assert own == {"file", "data"}
        assert [one for one in page.events if "Content Security" in json.dumps(one)] == []
        assert page.value("document.title") == "spiky · kharness"
    finally:
        server.start()
    bad = json.dumps({"address": "#run=results/none"}).encode()
    status, _, answer = server.ask("/api/alone", method="POST", body=bad)
    assert (status, json.loads(answer)["error"]) == (400, "there is no such run any more")


def test_a_phone_shows_all_without_scrolling_sideways(page: Browser) -> None:
    page.call("Emulation.setDeviceMetricsOverride", **PHONE)
    page.until(f"{CHART}?.plot && innerWidth === 390")
    assert page.value("document.documentElement.scrollWidth") == 390
    for tab in ("charts", "config", "about", "alerts"):
        show(page, f"run=results/spiky&tab={tab}")
        page.until(f"kharness.view.tab === {tab!r} && document.querySelector('.tab').childElementCount")
        assert page.value("document.documentElement.scrollWidth") == 390


def test_charts_are_drawn_only_when_they_come_into_sight(page: Browser) -> None:
    show(page, "run=results/spiky")
    page.until(READY)
    drawn = "[...kharness.shown.board.charts.values()].filter(chart => chart.plot).length"
    all_of_them = "kharness.shown.board.charts.size"
    assert page.value(drawn) < page.value(all_of_them)


def test_a_chart_is_saved_as_svg_with_its_lines_and_names(page: Browser) -> None:
    show(page, "sel=results/spiky&sel=results/marked")
    page.until(f"{READY} && {CHART}.lines.length === 2")
    kept = f"new DOMParser().parseFromString({CHART}.svg(), 'image/svg+xml')"
    assert page.value(f"{kept}.querySelectorAll('parsererror, script, image').length") == 0
    assert page.value(f"{kept}.querySelectorAll('path').length") >= 2
    texts = page.value(f"[...{kept}.querySelectorAll('text')].map(one => one.textContent)")
    assert {"train_loss", "spiky", MARKUP} <= set(texts)


def test_runs_that_are_drawn_are_told_apart_by_color_and_dash(page: Browser, folder: Path) -> None:
    names = [f"told-{number}" for number in range(20)]
    for name in names:
        with opened(folder / "told" / name, config={"SEED": name}) as run:
            run.log_step(1, train_loss=1.0)
            run.log_step(2, train_loss=0.5)
    try:
        page.until(f"{NAMES}.includes('told-19')")
        show(page, "&".join(f"sel=results/told/{name}" for name in names))
        page.until(f"{READY} && {CHART}.lines.length === 20")
        looks = """[...document.querySelectorAll(".runs tbody tr")]
            .filter(row => row.querySelector(":checked"))
            .map(row => row.querySelector('.swatch').style.background)"""
        in_table = page.until(f"({looks}).length === 20 && {looks}")
        lines = page.value(f"{CHART}.lines.map(line => [line.run.run_id, line.dash])")
        page.value("import('/page/dom.js').then(dom => { window.colorOf = dom.color })")
        colors = page.until(f"window.colorOf && {CHART}.lines.map(line => colorOf(line.run.run_id))")
        assert len({(color, str(dash)) for color, (_, dash) in zip(colors, lines, strict=True)}) == 20
        is_striped = [look.startswith("repeating-linear-gradient") for look in in_table]
        assert is_striped.count(True) == sum(dash is not None for _, dash in lines) == 20 - len(set(colors))
    finally:
        shutil.rmtree(folder / "told")


@pytest.mark.parametrize(("scheme", "paper"), [("light", "#ffffff"), ("dark", "#181c22")])
def test_colors_of_runs_differ_also_without_red_or_green(page: Browser, scheme: str, paper: str) -> None:
    """Distances in OKLab of what normal, protanopic and deuteranopic eyes see, contrasts as of WCAG 2."""
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    ids = "Array.from({ length: 400 }, (_, at) => `run-${at}`)"
    page.value(
        f"import('/page/dom.js').then(dom => {{ window.colors = [...new Set({ids}.map(dom.color))] }})"
    )
    colors = np.array([_linear(one) for one in page.until("window.colors")])
    page.call("Emulation.setEmulatedMedia", features=[])
    assert len(colors) == 16
    luminances = colors @ LUMINANCE + 0.05
    contrasts = np.maximum(luminances / (ground := _linear(paper) @ LUMINANCE + 0.05), ground / luminances)
    assert contrasts.min() >= 3
    for eyes, least in ((np.eye(3), 0.13), (PROTANOPIA, 0.05), (DEUTERANOPIA, 0.05)):
        seen = np.cbrt(np.clip(colors @ eyes.T, 0, 1) @ TO_CONES.T) @ TO_OKLAB.T
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[~np.eye(16, dtype=bool)]
        assert apart.min() > least


# Machado, Oliveira and Fernandes 2009, severity 1; Ottosson 2020.
PROTANOPIA = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])


def _linear(color: str) -> npt.NDArray[np.float64]:
    """Linear red, green and blue, 0..1, of #rrggbb."""
    share = np.array([int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
