"""`make compare` and FAIL_ON_REGRESSION, through the scripts that make calls."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kharness.config.output import in_columns
from kharness.report.compare import compare, compare_lines
from kharness.report.compare_page import summary_of
from kharness.report.judging.baseline import baseline_of
from kharness.report.overview.compared import options_table
from kharness.report.overview.headline import human_title
from kharness.report.report import report_lines
from kharness.report.summary import collect
from kharness.report.writing.files import as_csv, as_markdown
from monitoring import Run

from ...warm_python import WarmPython
from .conftest import Make, written_json


def end(
    test_accuracy: float, *, steps: int = 100, seconds: float = 10.0, **config: object
) -> list[dict[str, Any]]:
    return [
        {"event": "start", "num_steps": steps, "batch_size": 10, "config": {"SEED": 1, **config}},
        {
            "event": "end",
            "status": "complete",
            "steps_done": steps,
            "test_accuracy": test_accuracy,
            "training_seconds": seconds,
        },
    ]


Matrices = Callable[..., Path]
Script = Callable[..., tuple[int, str, str]]


@pytest.fixture
def matrices(tmp_path: Path, make: Make) -> Matrices:
    """Make a matrix of optimizers and seeds from accuracies: `matrices("old", sgd={"1": 0.9})`."""

    def build(name: str, **variants: Mapping[str, float | None]) -> Path:
        seeds = sorted({seed for runs in variants.values() for seed in runs})
        made = make.matrix(tmp_path / name, {"OPTIMIZER": list(variants), "SEED": seeds})
        for optimizer, runs in variants.items():
            for seed, accuracy in runs.items():
                values = {"OPTIMIZER": optimizer, "SEED": seed}
                if accuracy is None:
                    made.add(values, end(0)[:1], status="failed", reason="exit code 1")
                else:
                    made.add(values, end(accuracy, OPTIMIZER=optimizer))
        return made.directory

    return build


@pytest.fixture
def script(root: Path, warm_python: WarmPython) -> Script:
    """Exit code, output and errors of a script."""

    def run(name: str, *arguments: str) -> tuple[int, str, str]:
        done = warm_python.run([root / "scripts" / name, *arguments], cwd=root)
        return done.returncode, done.stdout, done.stderr

    return run


OLD = {"1": 0.90, "2": 0.80, "3": 0.70}
WORSE = {"1": 0.88, "2": 0.77, "3": 0.66}
UNCLEAR = {"1": 0.91, "2": 0.77, "3": 0.71}

TABLE = """\
A: {old}
B: {new}

metric             A              B              B - A                           verdict on B
-----------------  -------------  -------------  ------------------------------  ----------------
test accuracy (%)  80.00 ± 10.00  77.00 ± 11.00  -3.00 (-5.63 to -0.37) points   worse, p 0.039
training (s)       10.0 ± 0.0     10.0 ± 0.0     0.0 s                           no difference \
shown: all 3 pairs are exactly equal

B - A: 95.5 % intervals, 95 % over all looks
budget: A 100 steps, 1,000 samples, 10.0 s; B 100 steps, 1,000 samples, 10.0 s
configuration: the same
"""


def test_two_matrices_side_by_side(script: Script, matrices: Matrices) -> None:
    old, new = matrices("old", sgd=OLD), matrices("new", sgd=WORSE)
    code, out, error = script("compare.py", f"A={old}", f"B={new}")
    expected = TABLE.format(old=old, new=new)
    squeezed = [" ".join(line.split()) for line in out.splitlines() if not line.startswith("---")]
    assert squeezed == [
        " ".join(line.split()) for line in expected.splitlines() if not line.startswith("---")
    ]
    assert (code, error) == (0, "")


def test_a_regression_is_exit_code_3(script: Script, matrices: Matrices) -> None:
    old, new = matrices("old", sgd=OLD), matrices("new", sgd=WORSE)
    for asking in ("--fail-on-regression", "FAIL_ON_REGRESSION=y"):
        code, out, _ = script("compare.py", f"A={old}", f"B={new}", asking)
        assert (code, out.splitlines()[-1]) == (
            3,
            "regression: lenet5 (B): test accuracy -3.00 (-5.63 to -0.37) points",
        )
    code, out, _ = script("compare.py", f"A={new}", "--fail-on-regression", f"B={old}")
    assert (code, out.splitlines()[-1]) == (0, "no regression shown")


@pytest.mark.parametrize("several", [False, True])
def test_the_page_of_a_comparison_says_what_compare_says(
    script: Script, matrices: Matrices, several: bool, warm_python: WarmPython, tmp_path: Path
) -> None:
    """Also of two variants of one matrix, which has no command to add seeds to."""
    if several:
        place = matrices("m", sgd=OLD, adam=WORSE)
        sides = [f"A={place}:OPTIMIZER=sgd", f"B={place}:OPTIMIZER=adam"]
        page, ours, theirs = place / "compare_m-OPTIMIZER=sgd_m-OPTIMIZER=adam.html", "adam", "sgd"
    else:
        sides = [f"A={matrices('old', sgd=OLD)}", f"B={(place := matrices('new', sgd=WORSE))}"]
        page, ours, theirs = place / "compare_old_new.html", "lenet5 (B)", "lenet5 (A)"
    assert script("report.py", *sides) == (0, f"{page}\n", "")
    _, said, _ = script("compare.py", *sides)
    text = page.read_text()
    assert "-3.00 (-5.63 to -0.37) points" in said
    assert f"{ours} is worse than {theirs} in test accuracy: -3.00 (-5.63 to -0.37) points." in text
    assert f'<th scope="row">B</th><td class="words">{ours}</td>' in text
    assert "make " not in text
    assert "graphs/NAME.csv" not in text
    page.unlink()
    words = [side.partition("=")[2] for side in sides]
    done = warm_python.run(["-m", "kharness", "report", *words], cwd=tmp_path)
    assert (done.returncode, done.stderr, page.read_text()) == (0, "", text)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["A=x"], "error: a comparison needs two places, A= and B="),
        (["A=x", "B=y", "RUN=z"], "error: RUN= and PAPER=y are for one run or matrix"),
        (["A=/nowhere", "B=/nowhere"], "error: /nowhere does not exist"),
    ],
)
def test_a_page_of_no_comparison_is_refused(script: Script, arguments: list[str], error: str) -> None:
    code, out, errors = script("report.py", *arguments)
    assert (code, out, errors.startswith(f"{error}\nhint: ")) == (2, "", True)


def test_what_is_not_shown_is_no_regression(script: Script, matrices: Matrices) -> None:
    old, new = matrices("old", sgd=OLD), matrices("new", sgd=UNCLEAR)
    code, out, _ = script("compare.py", f"A={old}", f"B={new}", "--fail-on-regression")
    assert (code, out.splitlines()[-1]) == (0, "no regression shown")


def test_a_run_that_fails_only_now_is_a_regression(script: Script, matrices: Matrices) -> None:
    old, new = matrices("old", sgd=OLD), matrices("new", sgd={**UNCLEAR, "4": None})
    code, out, _ = script("compare.py", f"A={old}", f"B={new}", "--fail-on-regression")
    assert (code, out.splitlines()[-1]) == (3, "regression: lenet5 (B): 1 failed, none of lenet5 (A)")
    assert "not counted: optimizer-sgd_seed-4: failed (exit code 1)" in out
    both = matrices("both", sgd={**OLD, "4": None})
    assert script("compare.py", f"A={both}", f"B={new}", "--fail-on-regression")[0] == 0


def test_single_runs_are_compared_and_not_judged(script: Script, matrices: Matrices) -> None:
    old = matrices("old", sgd={"1": 0.9}) / "optimizer-sgd_seed-1"
    new = matrices("new", adam={"1": 0.896}) / "optimizer-adam_seed-1"
    code, out, error = script("compare.py", f"A={old}", f"B={new}", "FAIL_ON_REGRESSION=y")
    assert "-0.40 points" in out
    assert "configuration: OPTIMIZER sgd -> adam" in out
    assert code == 2
    assert error.splitlines()[0].startswith("error: cannot decide whether this is a regression: ")
    assert error.splitlines()[1] == (
        "hint: train more seeds with the same budget, or give TOLERANCE= for a single run of each"
    )
    assert script("compare.py", f"A={old}", f"B={new}")[0] == 0


def test_two_runs_of_a_program_are_the_title_of_their_page(tmp_path: Path, make: Make) -> None:
    for name in ("old", "new"):
        make.journal(tmp_path / name, make.training([2.0, 1.0], [0.5], 0.5))
    found = compare(str(tmp_path / "old"), str(tmp_path / "new"))
    assert human_title(summary_of(found)) == "old, new"


def test_runs_that_wrote_no_start_record_differ_in_what_they_were_opened_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["none"])  # a program of no repository, which changes between two runs
    for name, rate in (("old", 0.1), ("new", 0.2)):
        with Run(tmp_path / name, config={"lr": rate, "width": 64}) as run:
            run.log_step(1, train_loss=1.0)
    lines = compare_lines(compare(str(tmp_path / "old"), str(tmp_path / "new")))
    assert [line for line in lines if line.startswith("configuration")] == ["configuration: lr 0.1 -> 0.2"]


def test_an_option_in_capitals_is_the_same_option(tmp_path: Path) -> None:
    """An axis has the one, a command the other: in the table of the page, too."""
    for name, config in (("old", {"lr": 0.1, "width": 64}), ("new", {"LR": 0.2, "WIDTH": 64})):
        with Run(tmp_path / name, config=config) as run:
            run.start(model={"name": "m"}, training={})
            run.log_step(1, train_loss=1.0)
    found = compare(str(tmp_path / "old"), str(tmp_path / "new"))
    lines = compare_lines(found)
    assert [line for line in lines if line.startswith("configuration")] == ["configuration: lr 0.1 -> 0.2"]
    table = options_table(summary_of(found), {})
    assert table is not None
    assert [table.header[1:], *(row[1:] for row in table.rows)] == [["lr"], ["0.1"], ["0.2"]]


def with_steps(make: Make, place: Path, losses: list[float], seeds: tuple[str, ...] = ("1",)) -> Path:
    """Runs of one accuracy, whose steps have these losses and take other times."""
    made = make.matrix(place, {"SEED": list(seeds)})
    for seed in seeds:
        start, last = end(0.5 + int(seed) / 100, seconds=len(place.name))
        steps = [
            {"event": "step", "global_step": i, "train_loss": loss, "sec_per_step": 0.1 * len(place.name)}
            for i, loss in enumerate(losses, 1)
        ]
        made.add({"SEED": seed}, [start, *steps, last])
    return place / "seed-1" if seeds == ("1",) else place


@pytest.mark.parametrize("seeds", [("1",), ("1", "2", "3")])
def test_the_same_values_in_every_record_are_equal(
    script: Script, make: Make, tmp_path: Path, seeds: tuple[str, ...]
) -> None:
    """Whatever the times; and a comparison that is decided, for CI."""
    first, again = (with_steps(make, tmp_path / name, [0.3, 0.2], seeds) for name in ("a", "bb"))
    code, out, _ = script("compare.py", f"A={first}", f"B={again}", "FAIL_ON_REGRESSION=y")
    (row,) = [line for line in out.splitlines() if line.startswith("test accuracy")]
    assert row.endswith(f"  equal: the same values in all {3 * len(seeds)} records")
    assert (code, out.splitlines()[-1]) == (0, "no regression shown")
    assert [
        line.split()[-1] == "records" for line in out.splitlines() if line.startswith("training (s)")
    ] == [False]
    text = as_markdown(summary_of(compare(str(first), str(again))))
    assert "equal in test accuracy; the same values in all" in text


@pytest.mark.parametrize("losses", [[0.3, 0.2000000001], [0.3], [0.3, 0.2, 0.1]])
def test_one_other_value_or_record_is_not_equal(
    script: Script, make: Make, tmp_path: Path, losses: list[float]
) -> None:
    first, other = with_steps(make, tmp_path / "a", [0.3, 0.2]), with_steps(make, tmp_path / "b", losses)
    for places in ((first, other), (other, first)):
        _, out, _ = script("compare.py", f"A={places[0]}", f"B={places[1]}")
        assert "undecided: one common seed: chance cannot be separated from a difference" in out


def test_a_comparison_fits_a_terminal_of_eighty_columns(matrices: Matrices) -> None:
    compared = compare(str(matrices("old", sgd=OLD)), str(matrices("new", sgd=WORSE)))
    lines = in_columns("\n".join(compare_lines(compared, 80)), 80).split("\n")
    table = lines[lines.index("") + 1 :]  # after the two places, of which a path is never broken
    assert table[:11] == [
        "metric             A              B",
        "-----------------  -------------  -------------",
        "test accuracy (%)  80.00 ± 10.00  77.00 ± 11.00",
        "training (s)       10.0 ± 0.0     10.0 ± 0.0",
        "",
        "test accuracy (%), B - A: -3.00 (-5.63 to -0.37) points",
        "  worse, p 0.039",
        "training (s), B - A: 0.0 s",
        "  no difference shown: all 3 pairs are exactly equal",
        "",
        "B - A: 95.5 % intervals, 95 % over all looks",
    ]
    assert max(map(len, table)) <= 80
    assert compare_lines(compared, 200) == compare_lines(compared)


@pytest.mark.parametrize(("tolerance", "code"), [("0.005", 0), ("0.004", 0), ("0.003", 3), ("0", 3)])
def test_a_tolerance_decides_between_single_runs(
    script: Script, matrices: Matrices, tolerance: str, code: int
) -> None:
    old = matrices("old", sgd={"1": 0.75}) / "optimizer-sgd_seed-1"
    new = matrices("new", sgd={"1": 0.746}) / "optimizer-sgd_seed-1"
    asking = ["FAIL_ON_REGRESSION=y", f"TOLERANCE={tolerance}"]
    assert script("compare.py", f"A={old}", f"B={new}", *asking)[0] == code
    assert script("compare.py", f"A={new}", f"B={old}", *asking)[0] == 0


def test_other_budgets_leave_the_question_open(script: Script, tmp_path: Path, make: Make) -> None:
    for name, steps in (("old", 100), ("new", 50)):
        made = make.matrix(tmp_path / name, {"SEED": ["1", "2"]})
        for seed in ("1", "2"):
            made.add({"SEED": seed}, end(0.5 + int(seed) * steps / 1000, steps=steps))
    places = [f"A={tmp_path / 'old'}", f"B={tmp_path / 'new'}"]
    code, out, error = script("compare.py", *places, "--fail-on-regression", "TOLERANCE=1")
    assert code == 2
    assert "not comparable: budgets differ (samples 500 vs 1,000; steps 50 vs 100)" in out
    assert "not comparable" in error


def test_one_variant_of_a_place_against_another(script: Script, matrices: Matrices) -> None:
    place = matrices("m", sgd=OLD, adam=WORSE)
    code, out, _ = script("compare.py", f"A={place}:OPTIMIZER=sgd", f"B={place}:OPTIMIZER=adam")
    assert code == 0
    assert "-3.00 (-5.63 to -0.37) points" in out
    assert "configuration: OPTIMIZER sgd -> adam" in out


def test_variants_meet_their_namesakes(script: Script, matrices: Matrices) -> None:
    old = matrices("old", sgd=OLD, adam=OLD)
    new = matrices("new", adam=WORSE, adamw=OLD)
    code, out, _ = script("compare.py", f"A={old}", f"B={new}")
    assert code == 0
    rows = [line.split()[:4] for line in out.splitlines() if "test accuracy" in line]
    assert rows == [["test", "accuracy", "(%)", "80.00"]]
    assert ("only B has adamw" in out, "only A has sgd" in out) == (True, True)


def test_a_matrix_and_one_of_its_variants_are_told_which_to_choose(
    script: Script, matrices: Matrices
) -> None:
    old = matrices("old", sgd=OLD, adam=WORSE)
    code, _, errors = script("compare.py", f"A={old}", f"B={old}:OPTIMIZER=sgd")
    assert (code, errors) == (
        2,
        f"error: no variant of {old}:OPTIMIZER=sgd has the axis values of one of {old}\n"
        f"hint: choose one of each: make compare A={old}:OPTIMIZER=adam B={old}:OPTIMIZER=sgd\n",
    )


NO_METRIC = "error: no run has test_acuracy\nhint: name a metric that they have: test_accuracy\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "error: a comparison needs two places, A= and B="),
        (["A={place}"], "error: a comparison needs two places, A= and B="),
        (["A={place}", "B=/nowhere"], "error: /nowhere does not exist"),
        (
            ["A={place}", "B={place}:OPTIMIZER=lion"],
            "error: {place}:OPTIMIZER=lion is not a variant, run or matrix",
        ),
        (
            ["A={place}:OPTIMIZER=sgd", "B={other}"],
            "error: no variant of {other} has the axis values of one of",
        ),
        (
            ["A={place}", "B={place}", "FAIL_ON_REGRESSION=maybe"],
            "error: FAIL_ON_REGRESSION=maybe is neither",
        ),
        (["A={place}", "B={place}", "CONFIG_REPORT_METRIC=test_acuracy"], NO_METRIC),
        (["A={place}", "B={place}", "TOLERANCE=low"], "error: TOLERANCE=low is not a difference"),
        (
            ["A={place}", "B={place}", "CONFIG_REPORT_CONFIDENCE=2"],
            "error: CONFIG_REPORT_CONFIDENCE=2 is not",
        ),
    ],
)
def test_places_that_cannot_be_compared_are_refused(
    script: Script, tmp_path: Path, make: Make, matrices: Matrices, arguments: list[str], message: str
) -> None:
    place = matrices("m", sgd=OLD, adam=OLD)
    other = make.matrix(tmp_path / "other", {"OPTIMIZER": ["sgd", "adam"], "BATCH_SIZE": ["1", "2"]})
    for optimizer in ("adagrad", "lion"):
        other.plan({"OPTIMIZER": optimizer, "BATCH_SIZE": "1"})
    names = {"place": str(place), "other": str(other.directory)}
    if "{other}" in message:
        place_of_two = matrices("two", rprop=OLD, asgd=OLD)
        arguments = [f"A={place_of_two}", "B={other}"]
    code, _, error = script("compare.py", *(argument.format(**names) for argument in arguments))
    assert code == 2
    assert error.startswith(message.format(**names))
    assert "\nhint: " in error
    assert not list(place.glob("*.html"))


def test_summary_judges_against_a_baseline_elsewhere(script: Script, matrices: Matrices) -> None:
    old, new = matrices("old", sgd=OLD), matrices("new", sgd=WORSE)
    code, out, _ = script("summary.py", f"RUN={new}", f"BASELINE={old}", "FAIL_ON_REGRESSION=y")
    assert code == 3
    assert "regression: lenet5: test accuracy -3.00 (-5.63 to -0.37) points\n" in out
    assert "  lenet5  -3.00 (-5.63 to -0.37) points  worse, p 0.039\n" in out
    assert script("summary.py", f"RUN={new}", f"BASELINE={new}", "FAIL_ON_REGRESSION=y")[0] == 0
    content = json.loads((new / "summary.json").read_text())
    assert content["comparisons"][0]["baseline"] == "lenet5 of new"


def test_a_report_names_the_matrix_that_latest_was(script: Script, matrices: Matrices) -> None:
    """And not the link, which leads elsewhere by the time the report is read."""
    old, new = matrices("old", sgd=OLD), matrices("new", sgd=WORSE)
    (latest := old.parent / "latest").symlink_to(old.name)
    _, out, _ = script("summary.py", f"RUN={new}", f"BASELINE={latest}:OPTIMIZER=sgd")
    assert re.findall(r"compared with (\S+)", out) == [f"{old}:OPTIMIZER=sgd"]


def test_a_baseline_with_a_run_only_says_so(script: Script, matrices: Matrices) -> None:
    old, new = matrices("old", sgd=OLD), matrices("new", sgd=WORSE)
    arguments = [f"RUN={new}", f"BASELINE={old / 'optimizer-sgd_seed-1'}", "FAIL_ON_REGRESSION=y"]
    code, out, _ = script("summary.py", *arguments)
    assert code == 2
    assert "error: cannot decide whether this is a regression: lenet5: undecided: one common seed" in out


def test_a_partial_baseline_meets_its_like(tmp_path: Path, make: Make) -> None:
    """BASELINE=OPTIMIZER=sgd compares at the same batch size."""
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"], "BATCH_SIZE": ["16", "32"]})
    for optimizer in ("sgd", "adam"):
        for size in ("16", "32"):
            made.plan({"OPTIMIZER": optimizer, "BATCH_SIZE": size})
    met = baseline_of(collect(made.directory, {"BASELINE": "OPTIMIZER=sgd"}))
    assert [(a.label, b.label) for a, b in met.pairs] == [
        ("adam, batch_size=16", "sgd, batch_size=16"),
        ("adam, batch_size=32", "sgd, batch_size=32"),
    ]
    first = baseline_of(collect(made.directory))
    assert {b.label for _, b in first.pairs} == {"sgd, batch_size=16"}
    assert len(first.pairs) == 3
    by_label = baseline_of(collect(made.directory, {"BASELINE": "adam, batch_size=32"}))
    assert {b.label for _, b in by_label.pairs} == {"adam, batch_size=32"}


def test_an_axis_that_a_variant_lacks(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"PRUNING": ["none", "magnitude"], "SPARSITY": ["0.5", "0.9"]})
    made.plan({"PRUNING": "none"})
    for sparsity in ("0.5", "0.9"):
        made.plan({"PRUNING": "magnitude", "SPARSITY": sparsity})
    dense = baseline_of(collect(made.directory))
    assert [b.values for _, b in dense.pairs] == [{"PRUNING": "none"}] * 2
    ambiguous = baseline_of(collect(made.directory, {"BASELINE": "PRUNING=magnitude"}))
    assert (len(ambiguous.pairs), ambiguous.notes) == (
        0,
        ["none has several baselines with PRUNING=magnitude"],
    )


def test_models_are_compared_each_with_its_own(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"MODEL": ["lenet5", "resnet18"], "OPTIMIZER": ["sgd", "adam"]})
    for model, quick in (("lenet5", "sgd"), ("resnet18", "adam")):
        for optimizer in ("sgd", "adam"):
            records = make.training(
                [1.0] * 8, [0.2, 0.9] if optimizer == quick else [0.2, 0.2, 0.2, 0.9], 0.9
            )
            made.add({"MODEL": model, "OPTIMIZER": optimizer}, records)
    conclusions = collect(made.directory).conclusions
    assert [(c.variant, c.baseline) for c in conclusions.comparisons] == [
        ("lenet5, adam", "lenet5, sgd"),
        ("resnet18, adam", "resnet18, sgd"),
    ]
    assert conclusions.baseline == "OPTIMIZER=sgd"
    assert [times.workload for times in conclusions.times] == ["lenet5", "resnet18"]
    profiles = {profile.variant: profile for profile in conclusions.profiles}
    assert {name: set(p.ratios) for name, p in profiles.items()} == {
        "OPTIMIZER=sgd": {"lenet5", "resnet18"},
        "OPTIMIZER=adam": {"lenet5", "resnet18"},
    }
    assert profiles["OPTIMIZER=sgd"].ratios["lenet5"] == 1.0
    assert profiles["OPTIMIZER=adam"].ratios["resnet18"] == 1.0
    assert {front.workload for front in conclusions.fronts} == {"lenet5", "resnet18"}


def test_known_failures_stopped_and_unstable_runs_are_told_apart(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1", "2"]})
    unstable = made.add({"OPTIMIZER": "sgd", "SEED": "1"}, end(0.5))
    made.add({"OPTIMIZER": "sgd", "SEED": "2"}, end(0.6))
    known = made.add({"OPTIMIZER": "adam", "SEED": "1"}, end(0)[:1], status="failed", reason="loss is nan")
    stopped = made.add({"OPTIMIZER": "adam", "SEED": "2"}, end(0)[:1])
    attempt = {"started": 1.0, "ended": 2.0, "pid": 7, "exit_code": None, "signal": None}
    killed = {**attempt, "signal": 9, "cause": "signal", "reason": "signal 9 (SIGKILL)"}
    good = {**attempt, "exit_code": 0, "cause": None, "reason": None}
    early = {**attempt, "exit_code": 75, "cause": "stopped_early", "reason": "val_loss is among the worst"}
    (unstable / "status.json").write_text(json.dumps({"status": "complete", "attempts": [killed, good]}))
    (stopped / "status.json").write_text(json.dumps({"status": "interrupted", "attempts": [early]}))
    plan = json.loads((made.directory / "matrix.json").read_text())
    plan["quarantine"] = [{"cell": known.name, "reason": "diverges, issue 12"}]
    (made.directory / "matrix.json").write_text(json.dumps(plan))

    summary = collect(made.directory)
    page, lines = as_markdown(summary), report_lines(summary)
    assert "| optimizer-sgd_seed-1 | complete, unstable |" in page
    assert "- optimizer-sgd_seed-1: unstable, complete only in a later attempt (signal 9 (SIGKILL))" in page
    assert "| optimizer-adam_seed-2 | stopped early |" in page
    assert (
        "## Not complete: 1 of 4\n\n- optimizer-adam_seed-2: stopped early (val_loss is among the worst)"
        in page
    )
    known_line = "optimizer-adam_seed-1: failed (loss is nan); known: diverges, issue 12"
    assert f"## Known failures (quarantine): 1\n\n- {known_line}\n" in page
    assert f"  {known_line}" in lines
    unstable_line = "optimizer-sgd_seed-1: unstable, complete only in a later attempt (signal 9 (SIGKILL))"
    assert lines[lines.index("counted, but unstable: 1 of 4") + 1] == f"  {unstable_line}"
    # variant, axis, planned, complete, unstable, stopped early, known failures
    assert [row.split(",")[:7] for row in as_csv(summary).splitlines()[1:]] == [
        ["sgd", "sgd", "2", "2", "1", "0", "0"],
        ["adam", "adam", "2", "0", "0", "1", "1"],
    ]
    assert summary.conclusions.comparisons[0].failed == (0, 0)
    runs: Any = written_json(summary)["runs"]
    assert [(run["unstable"], run["cause"], run["known_failure"]) for run in runs] == [
        (True, None, None),
        (False, None, None),
        (False, None, "diverges, issue 12"),
        (False, "stopped_early", None),
    ]


def test_a_side_with_one_variant_is_named_as_its_namesake(tmp_path: Path, make: Make) -> None:
    for side, names in {"a": ["sgd", "adam"], "b": ["adam"]}.items():
        made = make.matrix(tmp_path / side, {"OPTIMIZER": names, "SEED": ["1", "2"]})
        for name in names:
            for seed in ("1", "2"):
                made.add({"OPTIMIZER": name, "SEED": seed}, make.training([2.0, 1.0], [0.5], 0.5))
    compared = compare(tmp_path / "a", tmp_path / "b")
    assert [(ours.label, theirs.label) for ours, theirs in compared.pairs] == [("adam (B)", "adam (A)")]
    summary = summary_of(compared)
    assert summary.axes == {"SIDE": ["A", "B"], "OPTIMIZER": ["adam"], "SEED": ["1", "2"]}
