"""Times beside other work on the machine: said, and in no conclusion where there was too much of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kharness.report.errors import ReportError
from kharness.report.judging.judgment import Verdict
from kharness.report.report import check_judging, report_lines
from kharness.report.runs import load_run
from kharness.report.summary import Summary, collect
from kharness.report.writing.files import as_markdown
from kharness.report.writing.html import as_html

from ..conftest import Make, written_json


def journal(accuracy: float, seconds: float) -> list[dict[str, Any]]:
    """Ten steps with a validation after the fifth and the tenth."""
    pace = {"event": "step", "sec_per_step": seconds / 10}
    evaluation = {"event": "eval", "split": "val", "val_accuracy": accuracy}
    counts = {"num_steps": 10, "batch_size": 10, "dataset": {"name": "digits"}, "seed": 1}
    end = {"steps_done": 10, "test_accuracy": accuracy, "training_cpu_seconds": 2 * seconds}
    return [
        {"event": "start", **counts},
        {**pace, "global_step": 5},
        {**evaluation, "global_step": 5},
        {**pace, "global_step": 10},
        {**evaluation, "global_step": 10},
        {"event": "end", "status": "complete", "training_seconds": seconds, **end},
    ]


def attempt(share: float | None, *, seconds: float = 10.0, arguments: Sequence[str] = ()) -> dict[str, Any]:
    known = {"started": 1000.0, "ended": 1000.0 + seconds, "exit_code": 0, "signal": None, "reason": None}
    return {**known, "pid": 7, "arguments": list(arguments), "other_work": share}


def write_attempts(run: Path, *attempts: dict[str, Any], status: str = "complete") -> None:
    (run / "status.json").write_text(json.dumps({"status": status, "attempts": attempts}))


@pytest.fixture
def crowded(tmp_path: Path, make: Make) -> Path:
    """Two optimizers of three seeds; beside the runs of adam's first seed others kept 43 % busy."""
    made = make.matrix(tmp_path / "m", {"OPTIMIZER": ["sgd", "adam"], "SEED": ["1", "2", "3"]})
    for optimizer, accuracies, factor in (("sgd", (0.90, 0.80, 0.70), 1), ("adam", (0.92, 0.83, 0.74), 4)):
        for seed, accuracy in enumerate(accuracies, 1):
            values = {"OPTIMIZER": optimizer, "SEED": str(seed)}
            run = made.add(values, journal(accuracy, factor * (1 + seed / 100)))
            write_attempts(run, attempt(0.43 if (optimizer, seed) == ("adam", 1) else 0.02 * seed))
    return Path(made.directory)


def test_crowded_times_are_null_and_said(crowded: Path) -> None:
    summary = collect(crowded)
    content: Any = written_json(summary)
    adam, alone = content["variants"][1]["metrics"], content["variants"][0]["metrics"]
    assert (adam["training_seconds"]["n"], adam["training_seconds"]["mean"]) == (2, pytest.approx(4.1))
    assert (adam["sec_per_step"]["n"], adam["training_cpu_seconds"]["n"]) == (2, 3)
    assert adam["other_work"]["mean"] == pytest.approx((0.43 + 0.04 + 0.06) / 3)
    assert alone["training_seconds"]["n"] == 3
    assert content["other_work"] == {
        "limit": 0.1,
        "over_limit": ["optimizer-adam_seed-1"],
        "not_measured": [],
    }
    said = (
        "times of 1 of 6 runs do not count: other work kept more than 10% of the processors busy "
        "(optimizer-adam_seed-1 43%)"
    )
    assert said in report_lines(summary)
    assert f"- {said}\n" in as_markdown(summary)
    assert "10% of the processors busy (optimizer-adam_seed-1 43%)." in as_html(summary)


def test_crowded_times_reach_no_conclusion(crowded: Path) -> None:
    """Four times the time would be held against adam; beside other work nobody knows.

    The target is sgd's median accuracy, 0.8, which all but its last seed have after 5 steps of about 0.1 s.
    """
    (times,) = collect(crowded).conclusions.times
    assert [times.variants[0].median_seconds, times.variants[1].median_seconds] == [pytest.approx(0.51), None]
    assert times.variants[1].median_step is not None
    assert collect(crowded).conclusions.profiles == []
    (found,) = collect(crowded).conclusions.comparisons
    assert (found.verdict, [budget.seconds for budget in found.budgets]) == (
        Verdict.BETTER,
        [None, pytest.approx(1.02)],
    )
    front = next(f for f in collect(crowded).conclusions.fronts if f.cost == "training_seconds")
    assert front.points["adam"][1] == pytest.approx(4.1)  # of the runs that count
    for given in ({"CONFIG_REPORT_OTHER_WORK_LIMIT": "1"}, {"CONFIG_REPORT_OTHER_WORK_LIMIT": "0.43"}):
        everything = collect(crowded, given).conclusions
        assert everything.comparisons[0].reason.startswith("better, but it had more time: 4.1 s vs 1.0 s")
        assert len(everything.profiles) == 2
    none = collect(crowded, {"CONFIG_REPORT_OTHER_WORK_LIMIT": "0"})
    fronts = {front.cost: front for front in none.conclusions.fronts}
    assert fronts["training_seconds"].unmeasured == ["sgd", "adam"]


def test_by_time_a_crowded_run_cannot_be_compared(crowded: Path) -> None:
    (found,) = collect(crowded, {"CONFIG_REPORT_BUDGET_UNIT": "time"}).conclusions.comparisons
    assert (found.verdict, found.reason) == (
        Verdict.NOT_COMPARABLE,
        "the time of a training is not known, or does not count because of other work on the machine",
    )


def test_a_metric_of_time_says_which_runs_do_not_count(crowded: Path) -> None:
    (found,) = collect(crowded, {"CONFIG_REPORT_METRIC": "training_seconds"}).conclusions.comparisons
    assert found.counts == (2, 2)
    assert found.failures == (
        "optimizer-adam_seed-1: complete without training that counts: other work was on the machine",
    )
    (unknown,) = collect(crowded, {"CONFIG_REPORT_METRIC": "val_wer"}).conclusions.comparisons
    assert "optimizer-adam_seed-1: complete without val wer" in unknown.failures


def test_a_timeout_beside_other_work_does_not_show_that_the_target_is_out_of_reach(crowded: Path) -> None:
    run = crowded / "optimizer-adam_seed-2"
    records = (run / "metrics.jsonl").read_text().splitlines()[:-1]
    (run / "metrics.jsonl").write_text("\n".join(records) + "\n")
    given = {"CONFIG_REPORT_TARGET": "val_accuracy>=0.9"}

    def reached(summary: Summary) -> bool | None:
        return summary.conclusions.times[0].variants[1].runs[1].reached

    for share, expected in ((0.05, False), (0.5, None)):
        write_attempts(run, {**attempt(share), "cause": "timeout"}, status="timeout")
        assert reached(collect(crowded, given)) is expected


def test_the_attempts_of_a_run_count_by_their_length(tmp_path: Path, make: Make) -> None:
    run = tmp_path / "run"
    make.journal(run, journal(0.9, 1.0))
    for attempts, share in (
        ([attempt(0.2, seconds=30), attempt(0.6, seconds=10)], 0.3),
        ([attempt(0.2), attempt(None)], None),
        ([attempt(None), attempt(0.6, arguments=["--from-scratch"])], 0.6),
        ([{key: value for key, value in attempt(None).items() if key != "other_work"}], None),
        ([], None),
    ):
        write_attempts(run, *attempts)
        found = load_run(run, most_other_work=0.1)
        assert (found.other_work, found.crowded) == (
            share if share is None else pytest.approx(share),
            share is not None,
        )


def test_what_was_not_measured_is_unknown_and_said(crowded: Path) -> None:
    write_attempts(crowded / "optimizer-adam_seed-1", attempt(None))
    lines = report_lines(collect(crowded))
    assert "other work on the machine: at most 6% of the processors" in lines
    assert "other work was not measured during 1 of 6 runs" in lines
    for run in crowded.glob("optimizer-*"):
        (run / "status.json").unlink()
    summary = collect(crowded)
    assert "other work on the machine was not measured: times may hold it" in report_lines(summary)
    assert summary.conclusions.comparisons[0].reason.startswith("better, but it had more time")


@pytest.mark.parametrize("limit", ["-0.1", "1.5", "ten", "nan"])
def test_a_limit_that_is_no_share_is_refused(crowded: Path, limit: str) -> None:
    with pytest.raises(
        ReportError, match=f"CONFIG_REPORT_OTHER_WORK_LIMIT={limit} is not a number from 0 to 1"
    ):
        check_judging(crowded, {"CONFIG_REPORT_OTHER_WORK_LIMIT": limit})
