"""The page as a person sees it, in headless Chromium, with runs that are really written."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from monitoring.control import ControlFile, ControlRequest
from monitoring.notes import Notes, read_notes, write_notes

from ...accessibility import violations
from ...browser import Browser, needs_browser
from ...waiting import wait_until
from .conftest import (
    CHART,
    MARKUP,
    MODEL,
    NAMES,
    READY,
    SPIKE,
    Server,
    click,
    opened,
    show,
    type_text,
)

pytestmark = needs_browser

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


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


def test_a_trace_of_the_profiler_is_handed_to_perfetto(page: Browser, folder: Path) -> None:
    """It listens once it was asked; a page in its place notes what it is told."""
    (folder / "spiky/profiler").mkdir()
    (folder / "spiky/profiler/step5.trace.json").write_text('{"traceEvents": []}')
    show(page, "run=results/spiky&tab=traces")
    page.value("""const own = window.open;
    window.open = (url) => { window.open = own; window.told = [url]; return { postMessage: (what, origin) => {
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
    type_text(page, "optimzer=sgd")
    page.until("document.getElementById('where-error').innerText")
    error = page.value("document.getElementById('where-error').innerText")
    assert error == "no run has optimzer (did you mean optimizer?)"


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
        page.until("kharness.view.run === 'results/live'")
        page.until(f"{READY} && {CHART}.lines[0].x.length === 5")
        for step in range(6, 21):
            run.log_step(step, train_loss=1 / step)
        page.until(f"{CHART}.lines[0].x.length === 20")
        assert page.value(f"{CHART}.lines[0].last.at(-1)") == 0.05
        page.until("document.querySelector('.run-head progress')?.value === 0.2")

        click(page, ".tabs button", "Control", meanwhile=lambda: another(21, ".run-head progress"))
        page.until("kharness.view.tab === 'control'")
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
        assert page.value(f"[...{CHART}.lines[0].last]") == [1.0, 0.5, 0.25]
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
    assert {"spiky", "failed"} <= set(page.value(NAMES))


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
    page.until("document.querySelector('.diff').open")
    assert violations(page) == []
    show(page, "sel=results/spiky&sel=results/marked&panel=differences")
    line = json.dumps(f"+ OPTIMIZER={json.dumps(MARKUP)}")
    page.until(f"document.querySelector('.diff pre')?.textContent.split('\\n').includes({line})")
    assert page.value("document.querySelectorAll('img[src=x]').length") == 0


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
        ("x", "https://elsewhere", "that is not an address of this page"),
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
    height, line = "document.querySelector('.runs .pill.tag').offsetHeight", 20
    assert page.value(height) == line
    write_notes(folder / "spiky", Notes())
    page.until(f"{NAMES}.length === 0")


def test_the_slider_shows_runs_as_they_stood(page: Browser) -> None:
    """Keys move the slider; the address has the moment, and a run that had not begun is hidden."""
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
