"""The report of a sweep: its leaderboard, and no verdict against whichever trial was first."""

from __future__ import annotations

import re
from pathlib import Path

from kharness.matrix.sweep.leaderboard import told_leaderboard
from kharness.report.overview.sweep_facts import sweep_facts
from kharness.report.summary import collect
from kharness.report.writing.html import as_html

from ..pages.conftest import made_sweep


def test_a_sweep_has_its_best_its_history_and_what_mattered(tmp_path: Path) -> None:
    directory = made_sweep(tmp_path / "search")
    summary = collect(directory)
    assert sweep_facts(summary) is None, "before its leaderboard is written"
    told_leaderboard(directory, lambda _: None)
    found = sweep_facts(summary)
    assert found is not None
    assert found.lead == "Best of 6 configurations: learning rate 0.03, optimizer adam: val loss 0.2000."
    assert found.shown == [
        "Equal steps: 2.",
        "Which ranks cannot be separated is unknown: of a single seed only an accuracy has a known error.",
        "The best was chosen by the validation set that it is shown with: expect less of it.",
    ]
    assert [one.words for one in found.next_runs] == [
        "To compare the first with the second on the test set, by seeds that the sweep has not used"
    ]
    assert [one.command for one in found.next_runs] == [
        "make test_matrix 'CONFIG_MATRIX_AXES=LEARNING_RATE=0.01 OPTIMIZER=sgd SEED=101..105' "
        "'CONFIG_MATRIX_INCLUDE=LEARNING_RATE=0.03 OPTIMIZER=adam SEED=101..105'"
    ]
    names = ["LEARNING_RATE", "OPTIMIZER", "rank", "val loss", "best val loss", "n", "trial"]
    assert found.table.header == names
    assert found.table.rows[0] == ["0.03", "adam", "1", "0.2000", "0.2000", "1/1", "trial-0004"]
    assert [row[-1][-1] for row in found.table.rows] == list("435216")
    assert found.history is not None
    assert found.history.alt == "val loss by trial: best so far ends at 0.2."
    points = [path.title for path in found.history.paths if path.look == "point"]
    losses = ("0.8000", "0.5000", "0.3000", "0.2000", "0.4000", "90.0000")
    assert points == [f"trial-{number:04}: {loss}" for number, loss in enumerate(losses, 1)]
    assert found.mattered is not None
    assert found.mattered.rows == [["LEARNING_RATE", "0"], ["OPTIMIZER", "0"]]
    page = as_html(summary)
    assert 'id="leaderboard"' in page
    assert 'id="judged"' not in page
    assert 'id="comparison"' not in page, "the leaderboard has it"
    assert "sweep of 6 configurations" in page
    assert '<span class="status complete">6 complete</span>' in page
    assert "<h2>Every run</h2>" in page
    assert "variant" not in visible_words(page)
    assert "verdict" not in page.partition("<body>")[2].partition("<script>")[0]


def visible_words(page: str) -> str:
    """Return the text of a page without its scripts, styles and tags."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.S)
    return re.sub(r"<[^>]*>", " ", text)


def test_a_leaderboard_that_cannot_be_read_costs_its_part_alone(tmp_path: Path) -> None:
    directory = made_sweep(tmp_path / "search")
    (directory / "leaderboard.json").write_text("{")
    page = as_html(collect(directory))
    assert 'id="leaderboard"' not in page
    assert 'id="runs"' in page
