"""make report PAPER=y: tables, captions, pictures by an editable style, sources, the appendix."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from kharness.report.errors import ReportError
from kharness.report.paper import appendix as bibliography
from kharness.report.paper.latex import breakable, escaped
from kharness.report.paper.paper import write_paper
from kharness.report.summary import collect
from monitoring import Run

from .conftest import Make
from .test_overview import OPTIMIZERS, START, compared_optimizers


@dataclass(frozen=True)
class Paper:
    """A matrix with its paper, and the names that the writing of it gave back."""

    matrix: Path
    names: list[str]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Paper:
    """Nobody writes there."""
    scores = {"sgd": [0.50, 0.51, 0.49], "adamw": [0.90, 0.92, 0.91]}
    summary = compared_optimizers(tmp_path_factory.mktemp("paper") / "m", Make(), scores)
    return Paper(summary.directory, [path.name for path in write_paper(summary)])


def test_everything_is_there_twice_alike_and_drawn_by_the_authors_style(
    written: Paper, tmp_path: Path
) -> None:
    tables = ("comparison", "options", "verdicts", "time_to_target_1", "costs_1")
    assert written.names == [
        "paper.mplstyle",
        *("training_loss.pdf", "training_loss.svg"),
        *("differences_test_accuracy.pdf", "differences_test_accuracy.svg"),
        *("figures.tex", "references.bib", "preview.tex"),
        *(f"{name}.{ending}" for name in tables for ending in ("tex", "md")),
        *("appendix.md", "appendix.tex"),
    ]
    summary = collect(Path(shutil.copytree(written.matrix, tmp_path / "m")))
    folder = summary.directory / "paper"
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    write_paper(summary)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == first
    assert b'width="234pt"' in first["training_loss.svg"]  # 3.25 inches
    style = folder / "paper.mplstyle"
    style.write_text(style.read_text().replace("3.25, 2.1", "5.5, 2.1"))
    write_paper(summary)
    assert b'width="396pt"' in (folder / "training_loss.svg").read_bytes()
    style.write_text("lines.linewidth: thick\n")
    with pytest.raises(ReportError, match=r"paper\.mplstyle: "):
        write_paper(summary)


def test_a_table_is_booktabs_with_n_intervals_and_method(written: Paper) -> None:
    text = (written.matrix / "paper" / "verdicts.tex").read_text()
    caption, row = re.findall(r"^\\caption\{(.*)\}$|^(adamw.*)$", text, flags=re.M)
    assert caption[0].startswith(
        "LeNet-5 on MNIST (subset): sgd, adamw; 3 seeds each. Differences from sgd in test accuracy "
        r"(n = 3 seeds each) with 95.5~\% intervals, 95~\% over all looks, which hold at once for all "
        "comparisons; paired t test over 3 seeds"
    )
    assert row[1].startswith("adamw & better & +41.00 & +3")
    assert [line for line in text.splitlines() if line.endswith("rule")] == [
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
    ]
    markdown = (written.matrix / "paper" / "options.md").read_text()
    assert "| adamw | 0.003 | 0.01 | 0.9 0.999 | cosine, warmup fraction 0.25 | - |" in markdown


def test_sources_are_those_of_what_was_used(written: Paper) -> None:
    keys = re.findall(r"^@\w+\{(\w+),", (written.matrix / "paper" / "references.bib").read_text(), flags=re.M)
    assert keys == ["landemets1983", "lecun1998", "loshchilov2019", "student1908", "sutskever2013"]


def test_every_source_that_is_cited_has_an_entry_beside_it() -> None:
    files = [path for kind in bibliography.KINDS.values() for name in kind.names if (path := kind.path(name))]
    files += [Path(model, "model.py").absolute() for model in ("gpt2", "lenet5", "resnet50")]
    missing = {
        (file.stem, key)
        for file in files
        for key in bibliography.cited_by(file)
        if key not in bibliography.entries(file.with_name("references.bib"))
    }
    methods = {key for of in bibliography.METHODS.values() for key in of}
    assert missing == set() == methods - bibliography.entries(bibliography._METHODS).keys()
    # One that somebody adds need not; those of the page name their source there.
    table = Path("docs/optimizers.md").read_text().partition("\n## ")[0]
    documented = re.findall(r"^\| `([a-z]+)` \| .*\|.*\|.*\|$", table, flags=re.M)
    assert "muon" in documented
    by_name = {path.stem: path for path in files}
    assert [name for name in documented if not bibliography.cited_by(by_name[name])] == []


def test_the_appendix_says_what_differs_from_the_plan(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1"]})
    made.add({"OPTIMIZER": "sgd", "SEED": "1"}, make.training([2.0, 1.0], [0.5], 0.5))
    made.add({"OPTIMIZER": "adam", "SEED": "1"}, make.training([2.0], []), status="killed", reason="signal 9")
    write_paper(collect(made.directory, {"BASELINE": "adam"}))
    text = (made.directory / "paper" / "appendix.md").read_text()
    sections = dict(re.findall(r"^## (.*)\n\n((?:- .*\n)+)", text, flags=re.M))
    assert sections["Exclusions"] == "- optimizer-adam_seed-1: killed (signal 9)\n"
    assert (
        "- the baseline was planned as the first variant, and is adam\n"
        in sections["Deviations from the plan"]
    )
    assert sections["Compute"].splitlines() == [
        "- 2 runs, and 1 attempt that did not complete",
        "- wall time of all trainings: 20 s",
        "- CPU time of all trainings: not measured",
        "- energy of the GPUs: not measured",
    ]


def test_latex_shows_every_character() -> None:
    assert escaped(r"50 % of a_b & {c} ^ ~ \ -0.5 ± <1e-3") == (
        r"50~\% of a\_b \& \{c\} \textasciicircum{} \textasciitilde{} \textbackslash{} "
        r"$-$0.5 $\pm$ \textless{}1e-3"
    )
    assert escaped("[x] é ï α Σ Η µ 中 🙂 \n 'a'") == (
        r"{}[x] \'{e} \"{i} $\alpha$ $\Sigma$ $\mathrm{H}$ $\mu$ [U+4E2D] [U+1F642]   "
        r"\textquotesingle{}a\textquotesingle{}"
    )
    assert breakable("train.py --lr -0.5 a_b/c") == (
        r"train.\allowbreak{}py -{}-lr -0.5 a\_\allowbreak{}b/\allowbreak{}c"
    )


ODD = [
    "_ % & # $",
    r"\ { } ~ ^",
    "[x]--y",
    "``''\"<>|",
    "é ø ß ł Ŋ",
    "αΩ ≤ … 中 🙂",
    "a_name_without_any_space_in_it_" * 2,
]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_all_of_it_compiles_and_nothing_is_wider_than_its_column(tmp_path: Path, make: Make) -> None:
    names = [f"{name} {number}" for number in range(6) for name in ODD]
    axes = {"OPTIMIZER": ["sgd"], "DATA": names, "SEED": ["1", "2", "3"]}
    made = make.matrix(tmp_path / "m", axes)
    for place, name in enumerate(names):
        for seed in axes["SEED"]:
            cell = make.training([2.0, 1.0], [0.5 + place / 100], 0.5 + place / 100 + int(seed) / 1000)
            start = {**START, "optimizer": {"name": "sgd", **OPTIMIZERS["sgd"], "note": name}}
            run = made.plan({"OPTIMIZER": "sgd", "DATA": str(place), "SEED": seed})
            made.cells[-1]["values"]["DATA"] = name
            make.journal(run, [{**start, "config": {"MODEL": "lenet5", "SEED": int(seed)}}, *cell[1:]])
            make.status(run, "complete", None)
    made._write_plan()
    write_paper(collect(made.directory))
    folder = made.directory / "paper"
    sources = [*Path("lib").rglob("references.bib"), *Path().glob("*/references.bib")]
    entries = {key: text for path in sources for key, text in bibliography.entries(path).items()}
    (folder / "references.bib").write_text("\n".join(entries.values()))
    preview = (folder / "preview.tex").read_text()
    for name, columns in (("one", ""), ("two", "[twocolumn]")):
        (folder / f"{name}.tex").write_text(preview.replace("{article}", f"{columns}{{article}}"))
        latex = ["pdflatex", "-interaction=batchmode", "-halt-on-error", name]
        for command in (latex, ["bibtex", name], latex, latex):
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (folder / f"{name}.log").read_text(errors="replace")[-2000:]
        assert "Warning" not in (folder / f"{name}.blg").read_text()
        log = (folder / f"{name}.log").read_text(errors="replace")
        assert re.findall(r"^(?:Overfull \\hbox.*|LaTeX Warning.*|! .*)", log, flags=re.M) == []


def test_a_single_run_has_its_curves_and_nothing_that_compares(tmp_path: Path) -> None:
    with Run(tmp_path / "mine", project="p", config={"width": 8}) as run:
        for step in range(1, 401):
            run.log_step(step, loss=1 / step, wer=0.5 / step)
        run.log_eval(200, split="val", eval_loss=0.5)
        run.log_eval(400, split="val", eval_loss=0.25)
    names = {path.name for path in write_paper(collect(tmp_path / "mine"))}
    assert {name for name in names if name.endswith((".pdf", ".tex"))} == {
        *("loss.pdf", "wer.pdf"),
        *("appendix.tex", "comparison.tex", "figures.tex", "preview.tex"),
    }
    folder = tmp_path / "mine" / "paper"
    captions = re.findall(r"^\\caption\{(.*)\}$", (folder / "figures.tex").read_text(), flags=re.M)
    assert captions == [
        "mine. Loss: last value of several records; area: their range.",
        "mine. Wer: last value of several records; area: their range.",
    ]


def test_without_a_curve_there_is_no_file_of_figures_and_nothing_reads_it(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1"]})
    made.add({"SEED": "1"}, make.training([2.0], [], 0.5))
    names = {path.name for path in write_paper(collect(made.directory))}
    assert "figures.tex" not in names
    assert "figures" not in (made.directory / "paper" / "preview.tex").read_text()
