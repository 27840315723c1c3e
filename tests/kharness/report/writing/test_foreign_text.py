"""Text that runs brought along, in summary.md as a real Markdown parser renders it, and on a terminal."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from kharness.config.writing import Table, in_markdown, list_item, on_one_line
from kharness.matrix.sweep.leaderboard import Leaderboard, TrialRow
from kharness.matrix.sweep.leaderboard import as_markdown as leaderboard
from kharness.matrix.sweep.validation import Objective, Trial
from kharness.report.report import report_lines
from kharness.report.summary import collect
from kharness.report.writing.files import as_markdown

from ..conftest import Make

MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
NAMES = ["<img src=x onerror=alert(1)>", "# 1. [x](http://evil) | `a` **b** _c_ ~~d~~ &lt; $e$ \\", "a\nb"]


class Rendered(HTMLParser):
    """A rendered Markdown page: its tags, and the text of its list items and table cells."""

    def __init__(self, markdown: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.items: list[str] = []
        self.cells: list[str] = []
        self._open: list[str] | None = None
        self.feed(MARKDOWN.render(markdown))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag in ("li", "td", "th"):
            self._open = self.items if tag == "li" else self.cells
            self._open.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("li", "td", "th"):
            self._open = None

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._open[-1] += data


def made_matrix(directory: Path, make: Make) -> Path:
    """Every name as an axis value with two seeds, the second of which failed with the name as its reason."""
    made = make.matrix(directory, {"TRACKER_PROJECT": NAMES, "SEED": ["1", "2"]})
    for number, (name, seed) in enumerate((name, seed) for name in NAMES for seed in ("1", "2")):
        made.plan({"TRACKER_PROJECT": name, "SEED": seed})
        made.cells[-1]["name"] = f"cell{number}"
        run = made.directory / f"cell{number}"
        make.journal(run, make.training([2.0, 1.0], [0.5], 0.5 if seed == "1" else None))
        make.status(run, "complete" if seed == "1" else "failed", f"{name}\n# \x1b[31m{name}")
    made._write_plan()
    return directory


def test_a_page_in_markdown_has_no_markup_but_its_own(tmp_path: Path, make: Make) -> None:
    page = Rendered(as_markdown(collect(made_matrix(tmp_path / "m", make))))
    assert page.tags == {
        *("h1", "h2", "p", "ul", "li", "strong", "em"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    shown = [name.replace("\n", " ") for name in NAMES]
    assert [cell for cell in page.cells[: 4 * 7] if cell in shown] == shown
    assert page.items[0] == f"axis TRACKER_PROJECT: {', '.join(shown)}"
    failed = [f"cell{2 * n + 1}: failed ({name} # {name}); no output" for n, name in enumerate(shown)]
    assert [item for item in page.items if item.endswith("no output")] == failed
    compared = [item.partition(": undecided")[0] for item in page.items if ": undecided" in item]
    labels = [f"tracker_project={shown[0]}", f"tracker_project={shown[1]}", "a b"]
    assert compared == [f"{label} and {labels[0]}" for label in labels[1:]]


def test_a_leaderboard_has_no_markup_but_its_own() -> None:
    complete = Trial("one", {"NAME": NAMES[0]}, "complete", "", [0.5])
    failed = Trial(NAMES[1], {"NAME": NAMES[1]}, "failed", NAMES[2], [])
    board = Leaderboard(
        NAMES[0],
        Objective("val_loss", minimize=True),
        symbols=["NAME"],
        common={},
        rows=[TrialRow(complete.values, [complete])],
        incomplete=[failed],
        refused=[],
        num_trials=2,
    )
    page = Rendered(leaderboard(board))
    assert page.tags == {"h1", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.items == [f"{NAMES[1]}: a b"]
    assert page.cells[5:] == ["1", NAMES[0], "0.5", "0.5", "one"]


def test_a_terminal_gets_no_controls_and_one_line_a_row(tmp_path: Path, make: Make) -> None:
    lines = report_lines(collect(made_matrix(tmp_path / "m", make)))
    assert "\x1b" not in "".join(lines)
    table = lines[1].split("\n")
    assert [line.split("  ")[0] for line in table[2:]] == [name.replace("\n", " ") for name in NAMES]
    assert f"  cell1: failed ({NAMES[0]} # {NAMES[0]})" in lines


@given(text=st.text() | st.text("\\`*_[]<>|~$&;#!-+.)(1a \n\t\x1b:/=", max_size=12))
@example("1. a")
@example("- - -")
@example("--")  # with that of the list three, which are a rule
@example("# a #")
@example("\\|")
@example("a&lt;b")
def test_any_text_is_shown_letter_for_letter(text: str) -> None:
    plain = " ".join(on_one_line(text).split())
    assert [" ".join(item.split()) for item in Rendered(list_item(in_markdown(text))).items] == [plain]
    table = Table(["a", text], [[text, "b"]], text_columns=2)
    assert [" ".join(cell.split()) for cell in Rendered(table.markdown()).cells] == ["a", plain, plain, "b"]
