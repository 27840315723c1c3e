"""report.html: what is in it, and what it does in a real browser, headless Chromium."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kharness.report.report import write_all
from kharness.report.summary import collect
from kharness.report.writing.html import as_html

from ....accessibility import violations
from ....browser import Browser, needs_browser
from ..conftest import Make, MatrixDirectory
from ..gpu.samples import write_ranks, write_samples


class Page(HTMLParser):
    """Every tag with its attributes, and the text outside scripts and styles."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self._hidden = False
        self.feed(content)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._hidden = tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._hidden = False

    def handle_data(self, data: str) -> None:
        if not self._hidden and data.strip():
            self.text.append(" ".join(data.split()))

    def sections(self) -> list[str | None]:
        return [attributes.get("id") for tag, attributes in self.tags if tag == "section"]


def written_page(directory: Path) -> Path:
    page = directory / "report.html"
    page.write_text(as_html(collect(directory)))
    return page


@pytest.fixture
def recorded(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root / "tests" / "data" / "recorded_matrix", tmp_path / "recorded_matrix"))


@pytest.fixture(scope="module")
def reported(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded matrix with its report; nobody writes there."""
    folder = tmp_path_factory.mktemp("reported") / "recorded_matrix"
    write_all(collect(Path(shutil.copytree(root / "tests" / "data" / "recorded_matrix", folder))))
    return folder


def test_a_real_matrix_is_on_the_page_whole(reported: Path) -> None:
    page = Page((reported / "report.html").read_text())
    assert page.sections() == [
        *("answer", "graphs", "comparison", "compared", "prices", "incomplete", "runs", "judged"),
    ]
    title = "LeNet-5 on MNIST (subset): sgd, adamw; 2 seeds each"
    assert page.text[:14] == [
        *(title, title, "3 complete", "1 killed", "recorded_matrix"),
        "No verdict on adamw in test accuracy: one common seed: chance cannot be separated from a "
        "difference.",
        "1 of 4 runs are not complete and are in no mean.",
        "To finish 1 of 4 runs:",
        "make continue RUN=results/recorded_matrix",
        "The next verdicts are given at 5 seeds. To train them:",
        "make test_matrix 'CONFIG_MATRIX_AXES=OPTIMIZER=sgd|adamw SEED=1..5'",
        *("adamw", "+7.30", "undecided"),
    ]
    for expected in (
        "76.15 ± 4.45",
        "undecided",
        "signal 9 (SIGKILL)",
        "2026-11-21 11:53:22 UTC",
        ".venv/bin/python lenet5/train.py --run-dir "
        "results/test_matrix_20261121T115322Z/optimizer-adamw_seed-2",
    ):
        assert expected in page.text
    tail = next(text for text in page.text if text.startswith("configuration: "))
    log = (reported / "optimizer-adamw_seed-2" / "output.log").read_text()
    assert tail == " ".join(log.split())


def test_the_page_refers_to_nothing_outside_itself(reported: Path) -> None:
    content = (reported / "report.html").read_text()
    outside = [
        (tag, name, value)
        for tag, attributes in Page(content).tags
        for name, value in attributes.items()
        if name in ("src", "href", "srcset", "data", "action")
        and not str(value).startswith("data:image/png;")
    ]
    assert outside == []
    assert "url(" not in content
    assert "@import" not in content


def test_what_a_run_says_is_text_and_never_markup(tmp_path: Path, make: Make) -> None:
    attack = "<script>alert(1)</script><img src=x onerror=alert(1)>"
    made = make.matrix(tmp_path / "m", {"TRACKER_PROJECT": [attack, "**b** & *c*"]})
    for number, project in enumerate((attack, "**b** & *c*")):
        made.plan({"TRACKER_PROJECT": project})
        made.cells[-1]["name"] = f"cell{number}"
        made.cells[-1]["command"] = attack
    made._write_plan()
    for number in range(2):
        run = made.directory / f"cell{number}"
        make.journal(run, make.training([2.0, 1.0], [0.5], 0.5))
        make.status(run, "failed" if number else "complete", attack)
    (made.directory / "cell1" / "output.log").write_text(f"\x1b[31m{attack}</pre>\n")
    content = as_html(collect(made.directory))
    tags = Page(content).tags
    assert [tag for tag, _ in tags].count("script") == 1
    assert [tag for tag, _ in tags if tag == "img"] == []
    assert [name for _, attributes in tags for name in attributes if name.startswith("on")] == []
    assert Page(content).text.count(attack) >= 3


def test_only_graphs_with_something_to_show_are_embedded(reported: Path) -> None:
    drawn = {path.stem for path in (reported / "graphs").glob("*.png")}
    of_the_page = {
        *("differences", "pareto_front", "time_per_step", "time_to_target"),
        *("training_loss", "validation_accuracy"),
    }
    assert of_the_page <= drawn
    content = as_html(collect(reported))
    assert content.count("<img") == len(drawn - of_the_page)  # the page draws what these show
    plots = [str(attributes["aria-label"]) for tag, attributes in Page(content).tags if tag == "svg"]
    assert [text.partition(" by step: ")[0] for text in plots] == [
        *("Training loss", "Validation loss", "Validation accuracy (%)"),
        *("Learning rate", "Gradient norm", "Throughput (samples/s)"),
        "Validation accuracy (%) by training time (s): sgd (n=2) ends at 74.67, adamw (n=1) ends at 83.",
        "test accuracy (%) by training (s): on the front adamw, sgd.",
        "test accuracy (%) by CPU memory (MB): on the front adamw, sgd.",
    ]
    assert plots[2] == "Validation accuracy (%) by step: sgd (n=2) ends at 74.67, adamw (n=1) ends at 83."


def test_a_single_run_has_a_page(recorded: Path) -> None:
    run = recorded / "optimizer-sgd_seed-1"
    write_all(collect(run))
    page = Page((run / "report.html").read_text())
    assert page.sections() == ["answer", "graphs", "numbers", "compared"]
    assert "test accuracy (%): 79.30 after 44 steps." in page.text
    plots = [str(attributes["aria-label"]) for tag, attributes in page.tags if tag == "svg"]
    assert len(plots) == 7
    assert plots[0] == "Loss by step: train_loss ends at 0.8763, val_loss ends at 0.7907."


def test_a_matrix_before_its_first_run_has_a_page(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"]})
    made.plan({"OPTIMIZER": "sgd"})
    made.plan({"OPTIMIZER": "adam"})
    page = Page(as_html(collect(made.directory)))
    assert "2 missing" in page.text
    assert "Not complete: 2 of 2" in page.text


def test_a_long_name_may_be_broken_before_its_number(tmp_path: Path, make: Make) -> None:
    axes = {"LEARNING_RATE": ["0.0005"], "OPTIMIZER_SGD_MOMENTUM": ["0.9", "0.95"]}
    made = make.matrix(tmp_path / "m", axes, ["OPTIMIZER_SGD_MOMENTUM"])
    for momentum in axes["OPTIMIZER_SGD_MOMENTUM"]:
        values = {"LEARNING_RATE": "0.0005", "OPTIMIZER_SGD_MOMENTUM": momentum}
        made.add(values, make.training([2.0, 1.0], [0.5], 0.5))
    content = as_html(collect(made.directory))
    assert '<th scope="row">optimizer_sgd_momentum=<wbr>0.95</th>' in content
    assert "learning_rate=<wbr>" not in content


def test_refused_cells_and_known_failures_have_their_reasons(matrix: MatrixDirectory) -> None:
    path = matrix.directory / "matrix.json"
    plan = json.loads(path.read_text())
    plan["quarantine"] = [{"cell": "optimizer-adam_seed-2", "reason": "issue 12"}]
    plan["refused"] = [{"name": "optimizer-rms_seed-1", "values": {}, "reason": "OPTIMIZER has no rms"}]
    path.write_text(json.dumps(plan))
    text = Page(as_html(collect(matrix.directory))).text
    assert "known failure: issue 12" in text
    assert text[text.index("optimizer-rms_seed-1") :][:2] == ["optimizer-rms_seed-1", "OPTIMIZER has no rms"]


def test_the_same_directories_give_the_same_files(reported: Path, recorded: Path) -> None:
    def files(matrix: Path) -> dict[str, bytes]:
        found = [*matrix.iterdir(), *(matrix / "graphs").iterdir()]
        return {path.name: path.read_bytes() for path in found if path.is_file()}

    write_all(collect(recorded))
    first = files(reported)
    assert {"summary.json", "summary.csv", "summary.md", "junit.xml", "report.html"} < set(first)
    assert files(recorded) == first


@pytest.fixture
def opened(browser: Browser, reported: Path) -> Browser:
    browser.open((reported / "report.html").as_uri())
    return browser


def column(browser: Browser, table: str, number: int) -> list[str]:
    cells = f"[...document.querySelectorAll('#{table} tbody tr')].map(row => row.cells[{number}].innerText)"
    return list(browser.value(cells))


def click(browser: Browser, table: str, number: int) -> str:
    """Click a column's title; returns how the column says it is sorted."""
    heading = f"document.querySelector('#{table} thead').rows[0].cells[{number}]"
    return str(
        browser.value(f"{heading}.querySelector('button').click(); {heading}.getAttribute('aria-sort')")
    )


@needs_browser
def test_the_page_loads_without_errors_and_without_the_network(opened: Browser) -> None:
    problems = [event for event in opened.events if event["method"] == "Runtime.exceptionThrown"]
    problems += [event for event in opened.events if event["method"] == "Log.entryAdded"]
    assert problems == []
    requests = [event for event in opened.events if event["method"] == "Network.requestWillBeSent"]
    schemes = {event["params"]["request"]["url"].split(":")[0] for event in requests}
    assert schemes - {"data"} == {"file"}, "pictures are part of the page"


@needs_browser
def test_a_click_sorts_by_number_and_a_second_one_turns_it_round(opened: Browser) -> None:
    plan = [
        "optimizer-sgd_seed-1",
        "optimizer-sgd_seed-2",
        "optimizer-adamw_seed-1",
        "optimizer-adamw_seed-2",
    ]
    assert column(opened, "each", 0) == plan
    assert click(opened, "each", 3) == "ascending"
    assert column(opened, "each", 3) == ["73.00", "79.30", "86.60", "-"]
    assert click(opened, "each", 3) == "descending"
    assert column(opened, "each", 3) == ["86.60", "79.30", "73.00", "-"]
    assert click(opened, "each", 0) == "ascending"
    assert column(opened, "each", 0) == sorted(plan)
    assert opened.value("document.querySelectorAll('#each [aria-sort]').length") == 1
    click(opened, "variants", 2)
    assert column(opened, "variants", 2) == ["76.15 ± 4.45", "86.60"]


@needs_browser
def test_axis_values_that_are_numbers_sort_as_numbers(browser: Browser, tmp_path: Path, make: Make) -> None:
    rates = ["0.05", "1e-4", "0.003", "1"]
    made = make.matrix(tmp_path / "m", {"LEARNING_RATE": rates})
    for rate in rates:
        made.plan({"LEARNING_RATE": rate})
    browser.open(written_page(made.directory).as_uri())
    click(browser, "variants", 0)
    assert column(browser, "variants", 0) == ["1e-4", "0.003", "0.05", "1"]


@needs_browser
def test_the_page_fits_a_phone_and_knows_the_dark(opened: Browser) -> None:
    opened.call("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True)
    assert opened.value("document.documentElement.scrollWidth") <= 360
    paper = "getComputedStyle(document.body).backgroundColor"
    colors = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        opened.call("Emulation.setEmulatedMedia", features=[feature])
        colors.append(opened.value(paper))
    assert colors == ["rgb(255, 255, 255)", "rgb(20, 24, 28)"]


@needs_browser
def test_the_page_can_be_read_by_everybody(opened: Browser) -> None:
    """At the width of a tablet nothing is beside the screen, either."""
    opened.call(
        "Emulation.setDeviceMetricsOverride", width=1024, height=768, deviceScaleFactor=1, mobile=True
    )
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        opened.call("Emulation.setEmulatedMedia", features=[feature])
        opened.until(f"matchMedia('(prefers-color-scheme: {scheme})').matches")
        assert opened.value("document.documentElement.scrollWidth") == 1024
        assert violations(opened) == []
    opened.call("Emulation.clearDeviceMetricsOverride")


PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}


@pytest.fixture(scope="module")
def long_names(reported: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a matrix whose variants have long names, with the graphs of the recorded one."""
    names, make = ["adamw_with_a_name_that_breaks_nowhere", "sgd"], Make()
    made = make.matrix(
        tmp_path_factory.mktemp("phone") / "m", {"LEARNING_RATE": ["1e-3", "3e-4"], "OPTIMIZER": names}
    )
    for rate in ("1e-3", "3e-4"):
        for name in names:
            made.add({"LEARNING_RATE": rate, "OPTIMIZER": name}, make.training([2.0, 1.0], [0.5], 0.5))
    (made.directory / "graphs").mkdir()
    for ending in ("csv", "png"):  # as of a graph that somebody has added
        shutil.copy(reported / f"graphs/time_per_step.{ending}", made.directory / f"graphs/mine.{ending}")
    return written_page(made.directory)


@pytest.fixture
def on_a_phone(browser: Browser, long_names: Path) -> Iterator[Browser]:
    browser.call("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.open(long_names.as_uri())
    yield browser
    browser.call("Emulation.clearDeviceMetricsOverride")


@needs_browser
def test_a_phone_shows_every_verdict_and_every_graph_whole(on_a_phone: Browser) -> None:
    outside = """[...document.querySelectorAll("%s")].map(one => one.getBoundingClientRect()).map(
        box => [box.width > 40, box.left >= 0, box.right <= 390])"""
    assert (
        on_a_phone.value(outside % ".verdict") == [[True, True, True]] * 8
    )  # three beside the answer, and main effects, too
    assert on_a_phone.value(outside % "#verdicts tbody th") == [[True, True, True]] * 3
    assert on_a_phone.value(outside % "figure img") == [[True, True, True]]
    assert on_a_phone.value(outside % ".plot .frame, .plot .line") == [[True, True, True]] * 12
    assert on_a_phone.value("document.documentElement.scrollWidth") == 390


@needs_browser
def test_a_phone_says_what_is_beside_the_screen(on_a_phone: Browser) -> None:
    said = "[...document.querySelectorAll('.wide')].map(one => [one.firstElementChild.id, one.className])"
    wider = "[...document.querySelectorAll('.scroll')].filter(one => one.scrollWidth > one.clientWidth)"
    tables = on_a_phone.value(f"{wider}.map(one => one.firstElementChild.id)")
    assert {"verdicts", "variants", "each"} <= set(tables)
    assert on_a_phone.value(said) == [[table, "scroll wide goes-on"] for table in tables]
    hint = "getComputedStyle(document.querySelector('#each').parentElement, '::after').content"
    assert on_a_phone.value(hint) == '"↔ scroll sideways: there is more than fits"'
    to_the_end = f"const box = {wider}[0]; box.onscroll = done; box.scrollLeft = 1e6"
    scrolled = f"new Promise(done => {{ {to_the_end} }})"
    on_a_phone.call("Runtime.evaluate", expression=scrolled, awaitPromise=True)
    assert on_a_phone.value(said)[0] == [tables[0], "scroll wide"]


@needs_browser
def test_a_phone_enlarges_a_graph(on_a_phone: Browser) -> None:
    figure = "document.querySelector('figure:not(.plot)')"
    look = f"[{figure}.querySelector('img').offsetWidth, {figure}.className, {figure}.innerText]"
    fits = on_a_phone.value(look)
    assert (fits[0] <= 390, fits[1:]) == (True, ["", "enlarge"])
    click = f"{figure}.querySelector('button').click()"
    on_a_phone.value(click)
    assert on_a_phone.value(look) == [672, "enlarged wide goes-on", "fit to the screen"]
    on_a_phone.value(click)
    assert on_a_phone.value(look) == fits


@needs_browser
def test_pictures_of_gpus_fit_a_phone_and_can_be_read(browser: Browser, tmp_path: Path, make: Make) -> None:
    run = tmp_path / "run"
    make.journal(run, make.training([2.0, 1.0], [0.5], 0.5))
    values = {"memory": 12288.0, "utilization": 95.0, "power": 200.0, "temperature": 60.0}
    write_samples(run, 5, 8, lambda number, gpu: values | {"power": 200.0 + gpu})
    write_ranks(run, [0.009] * 7 + [0.012])
    page = written_page(run).as_uri()
    browser.call("Emulation.setDeviceMetricsOverride", **PHONE)
    feature = {"name": "prefers-color-scheme", "value": "dark"}
    browser.call("Emulation.setEmulatedMedia", features=[feature])
    browser.open(page)
    boxes = "[...document.querySelectorAll('#gpus .frame, #gpus .line, #gpus figcaption')]"
    inside = "box => box.width > 40 && box.left >= 0 && box.right <= 390"
    assert browser.value(f"{boxes}.map(one => one.getBoundingClientRect()).every({inside})")
    assert browser.value(f"[{boxes}.length, document.querySelectorAll('#gpus img').length]") == [36, 0]
    assert browser.value("document.documentElement.scrollWidth") == 390
    assert violations(browser) == []
    browser.call("Emulation.clearDeviceMetricsOverride")


@needs_browser
def test_print_unfolds_the_output_of_failed_runs(opened: Browser) -> None:
    opened.value("for (const details of document.querySelectorAll('details')) details.open = false")
    pdf = opened.call("Page.printToPDF")["data"]
    assert pdf.startswith("JVBERi0")  # %PDF-
    assert opened.value("[...document.querySelectorAll('details')].map(one => one.open)") == [True, True]


@needs_browser
def test_sorting_keeps_a_thousand_runs_together(browser: Browser, tmp_path: Path, make: Make) -> None:
    seeds = [str(seed) for seed in range(1000)]
    made = make.matrix(tmp_path / "m", {"SEED": ["0"]})
    made.cells += [
        {"name": f"seed-{s}", "values": {"SEED": s}, "model": "lenet5", "command": f"train {s}"}
        for s in seeds
    ]
    made._write_plan()
    browser.open(written_page(made.directory).as_uri())
    click(browser, "each", 0)
    click(browser, "each", 0)
    assert column(browser, "each", 0) == [f"seed-{seed}" for seed in reversed(seeds)]
    assert column(browser, "each", 2)[-1] == "train 0"
