"""Charts of the page in headless Chromium: lines, zoom, axes, smoothing and colors."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from ...browser import Browser, needs_browser
from ...waiting import wait_until
from .conftest import (
    CHART,
    MARKUP,
    NAMES,
    READY,
    SPIKE,
    SPIKE_STEP,
    click,
    opened,
    show,
)

pytestmark = needs_browser


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
    # A server that is busy answers for some of the runs first: two lines alone are not yet these two.
    page.until(f"{CHART}.lines.length === 2 && {CHART}.lines.some(one => one.label.includes('seeds'))")
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
        drawn = {(color, str(dash)) for color, (_, dash) in zip(colors, lines, strict=True)}
        told = Counter(color for color, _ in drawn)
        # Ids are chance, and there are four ways to draw a color.
        assert told == {color: min(number, 4) for color, number in Counter(colors).items()}
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
        "window.colors = null;"
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
