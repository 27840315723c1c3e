"""Against published AlgoPerf numbers (tests/data/algoperf), and by hand."""

from __future__ import annotations

import csv
import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kharness.report.errors import ReportError
from kharness.report.judging.profiles import (
    RunTime,
    Target,
    chosen_target,
    parse_target,
    profiles,
    seconds_of_steps,
    time_to_target,
    variant_times,
)
from kharness.report.metrics import metric_named
from kharness.report.runs import RunData, Series


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def run(
    validations: Sequence[tuple[int, float]],
    pace: Sequence[tuple[int, float]] = (),
    *,
    status: str = "complete",
    cause: str | None = None,
    nonfinite: int = 0,
) -> RunData:
    """A run with validation results and recorded seconds per step."""
    series = {
        ("eval", "val_accuracy"): Series(
            array("q", [s for s, _ in validations]), array("d", [v for _, v in validations])
        ),
        ("step", "sec_per_step"): Series(array("q", [s for s, _ in pace]), array("d", [v for _, v in pace])),
    }
    return RunData(Path("run"), status, "", 1, {}, {}, series, nonfinite, cause=cause)


def test_scores_are_the_published_ones(root: Path) -> None:
    """14 submissions on 9 workloads, to the last digit."""
    table = rows(root / "tests" / "data" / "algoperf" / "times_to_target.csv")
    published = {row["submission"]: float(row.pop("score")) for row in table}
    times = {row["submission"]: {w: float(t) for w, t in row.items() if w != "submission"} for row in table}
    found = {profile.variant: profile.score for profile in profiles(times)}
    assert found == {name: pytest.approx(score, rel=1e-12) for name, score in published.items()}


def logs(root: Path) -> Mapping[tuple[str, str], Sequence[RunTime]]:
    """The times to target of the sample logs, by submission and workload."""
    folder = root / "tests" / "data" / "algoperf"
    targets = {
        row["workload"]: Target("val_accuracy", row["sign"] == ">=", float(row["target"]), "AlgoPerf")
        for row in rows(folder / "targets.csv")
    }
    of_study: dict[tuple[str, str, str], list[tuple[int, float, float]]] = {}
    for row in rows(folder / "evaluations.csv"):
        key = row["submission"], row["workload"], row["study"]
        of_study.setdefault(key, []).append(
            (int(row["global_step"]), float(row["seconds"]), float(row["value"]))
        )
    found: dict[tuple[str, str], list[RunTime]] = {}
    for (submission, workload, study), evaluations in of_study.items():
        pace, before = [], (0, 0.0)
        for step, seconds, _ in evaluations:
            pace.append((step, (seconds - before[1]) / (step - before[0])))
            before = step, seconds
        recorded = run([(step, value) for step, _, value in evaluations], pace)
        times = found.setdefault((submission, workload), [])
        times.append(time_to_target(f"{workload}-{study}", study, recorded, targets[workload]))
    return found


def test_sample_logs_give_the_published_scores(root: Path) -> None:
    """Validation times become medians over three studies and then the scores 0.6244 and 0.4590."""
    times: dict[str, dict[str, float]] = {}
    for (submission, workload), runs in logs(root).items():
        assert len(runs) == 3
        median = variant_times(submission, runs).median_seconds
        assert median is not None
        times.setdefault(submission, {})[workload] = median
    found = {profile.variant: round(profile.score, 4) for profile in profiles(times)}
    assert found == {"shampoo": 0.6244, "baseline": 0.4590}


def test_the_first_validation_at_the_target_counts(root: Path) -> None:
    """Shampoo's three studies on fastMRI, read off the logs."""
    found = logs(root)[("shampoo", "fastmri")]
    assert [time.seconds for time in found] == pytest.approx([640.769398, 542.521617, 1727.767915])
    missed = logs(root)[("shampoo", "criteo1tb")]
    assert [time.reached for time in missed] == [False, True, True]


def test_a_profile_by_hand() -> None:
    """Ratios 1 and 3 of A, 2 and 1 of B, a workload that nobody finishes: areas of 4/3 and 5/3 out of 3."""
    a, b, c = profiles(
        {
            "A": {"one": 10.0, "two": 30.0, "three": math.inf},
            "B": {"one": 20.0, "two": 10.0, "three": math.inf},
            "C": {"one": 40.1},
        }
    )
    assert (a.ratios, b.ratios) == (
        {"one": 1.0, "three": math.inf, "two": 3.0},
        {"one": 2.0, "three": math.inf, "two": 1.0},
    )
    assert [round(rho, 6) for rho in (a.rho[0], a.rho[65], a.rho[66], a.rho[99])] == [
        0.333333,
        0.333333,
        0.666667,
        0.666667,
    ]
    assert a.score == pytest.approx((1 + 1 / 3) / 3, abs=0.01)
    assert b.score == pytest.approx((1 + 2 / 3) / 3, abs=0.01)
    assert (c.score, c.ratios["two"]) == (0.0, math.inf)


@given(
    st.dictionaries(
        st.sampled_from("abcde"),
        st.fixed_dictionaries({w: st.floats(0.1, 100) | st.just(math.inf) for w in ("x", "y", "z")}),
        min_size=1,
    )
)
def test_profiles_rise_from_the_wins_to_what_is_within_reach(times: dict[str, dict[str, float]]) -> None:
    found = profiles(times)
    for profile in found:
        assert list(profile.rho) == sorted(profile.rho)
        wins = sum(
            t <= min(other[w] for other in times.values()) and math.isfinite(t)
            for w, t in times[profile.variant].items()
        )
        assert profile.rho[0] == wins / 3
        # the exact integral of a step function; the benchmark's grid errs by half a step each
        exact = sum(max(0.0, 4 - ratio) for ratio in profile.ratios.values()) / 9
        assert profile.score == pytest.approx(exact, abs=0.5 / 99 + 1e-9)
    everywhere = any(all(math.isfinite(of[w]) for of in times.values()) for w in ("x", "y", "z"))
    assert not everywhere or max(profile.score for profile in found) > 0


def test_training_time_leaves_out_validation_and_repeated_steps() -> None:
    """Two seconds a step up to 10, one up to 20: step 15 is after 25 s, step 30 after 40 s."""
    recorded = run([], [(10, 2.0), (20, 1.0)])
    until = seconds_of_steps(recorded)
    assert until is not None
    assert [until(step) for step in (5, 10, 15, 20, 30)] == [10, 20, 25, 30, 40]
    assert seconds_of_steps(run([])) is None


@pytest.mark.parametrize(
    ("status", "cause", "nonfinite", "reached"),
    [
        ("complete", None, 0, False),
        ("failed", "non_finite", 1, False),
        ("failed", None, 1, False),
        ("failed", "out_of_memory", 0, False),
        ("timeout", "timeout", 0, False),
        ("failed", "disk_full", 0, None),
        ("killed", "signal", 0, None),
        ("interrupted", "stopped_early", 0, None),
        ("running", None, 0, None),
        ("missing", None, 0, None),
    ],
)
def test_only_the_training_s_own_end_means_never(
    status: str, cause: str | None, nonfinite: int, reached: bool | None
) -> None:
    recorded = run([(5, 0.5)], status=status, cause=cause, nonfinite=nonfinite)
    target = Target("val_accuracy", True, 0.9, "")
    assert time_to_target("run", "1", recorded, target) == RunTime("run", "1", reached, None, None)


def test_a_run_that_was_killed_after_its_target_reached_it() -> None:
    recorded = run([(5, 0.5), (10, 0.95), (15, 0.8)], [(5, 1.0)], status="killed", cause="signal")
    found = time_to_target("run", "1", recorded, Target("val_accuracy", True, 0.9, ""))
    assert found == RunTime("run", "1", True, 10, 10.0)


def test_medians_over_the_seeds() -> None:
    reached = [RunTime(f"r{i}", str(i), True, step, step * 2.0) for i, step in enumerate([10, 30, 20])]
    never = RunTime("n", "4", False, None, None)
    unknown = RunTime("u", "5", None, None, None)
    assert variant_times("v", reached).median_step == 20
    assert variant_times("v", [*reached, never]).median_seconds == 50  # of 20, 40, 60, ∞
    assert variant_times("v", [reached[0], never]).median_step == math.inf
    assert variant_times("v", [reached[0], unknown]).median_step == 10
    assert variant_times("v", [unknown]).median_step is None
    without_pace = RunTime("p", "6", True, 10, None)
    assert variant_times("v", [without_pace]).median_seconds is None


def test_the_target_nobody_set_is_one_that_every_variant_reaches() -> None:
    good = [run([(1, 0.5), (2, best)]) for best in (0.9, 0.95)]
    bad = [run([(1, best), (2, 0.1)]) for best in (0.7, 0.8, 0.75)]
    target = chosen_target(metric_named("val_accuracy"), [good, bad])
    assert target is not None
    assert (target.value, target.at_least) == (0.75, True)
    assert all(
        math.isfinite(
            variant_times("v", [time_to_target("r", None, r, target) for r in runs]).median_step or 0
        )
        for runs in (good, bad)
    )
    assert chosen_target(metric_named("val_accuracy"), [[], [run([])]]) is None
    even = [run([(1, best)]) for best in (0.7, 0.8)]
    assert chosen_target(metric_named("val_accuracy"), [even]) == Target(
        "val_accuracy", True, 0.7, "the worst variant's median best validation, chosen from the results"
    )


def test_targets_are_read() -> None:
    assert parse_target("val_accuracy>=0.97") == Target("val_accuracy", True, 0.97, "REPORT_TARGET")
    assert parse_target(" val_loss <= 1e-1 ") == Target("val_loss", False, 0.1, "REPORT_TARGET")
    assert str(parse_target("val_accuracy>=0.970")) == "val_accuracy>=0.97"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("0.97", "is not METRIC>=number or METRIC<=number", "for example val_accuracy>=0.97"),
        ("val_accuracy>0.97", "is not METRIC>=number", "for example val_accuracy>=0.97"),
        ("val_accuracy>=1e999", "is not METRIC>=number", "for example val_accuracy>=0.97"),
        ("test_accuracy>=0.97", "targets are reached on the validation set", "val_accuracy>=0.97"),
        ("val_accuracy<=0.97", "is reached by getting worse", "write val_accuracy>=0.97"),
        ("val_loss>=0.1", "is reached by getting worse", "write val_loss<=0.1"),
    ],
)
def test_targets_that_are_none_are_refused(text: str, message: str, hint: str) -> None:
    with pytest.raises(ReportError) as caught:
        parse_target(text)
    assert message in str(caught.value)
    assert hint in caught.value.hint


def test_the_median_of_seeds_is_numpy_s_too(root: Path) -> None:
    """AlgoPerf takes numpy.median, which also averages the middle two, infinities included."""
    import numpy as np

    for values in (
        [1.0, math.inf],
        [1.0, 2.0, math.inf, math.inf],
        [3.0, 1.0, 2.0],
        [1.0, 2.0, 4.0, math.inf],
    ):
        assert statistics.median(values) == np.median(values)
