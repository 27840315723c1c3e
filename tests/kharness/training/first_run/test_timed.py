"""Steps with limits and results: what is killed, skipped and begun again, on real processes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from kharness.training.first_run.timed import (
    EXIT_SKIPPED,
    RESULTS,
    Result,
    Step,
    StepFailed,
    StepSkipped,
    read_results,
    run_one,
    run_steps,
)

from ....waiting import wait_until


def step(name: str, limit: float = 60.0) -> Step:
    return Step(name, limit, lambda folder, device: "")


def run(
    folder: Path,
    programs: Mapping[str, str],
    *,
    seconds: float = 600.0,
    limits: Mapping[str, float] | None = None,
) -> dict[str, tuple[str, str]]:
    """Steps that are programs; what came of each, and what was said."""
    found = run_steps(
        [step(name) for name in programs],
        lambda it: [sys.executable, "-c", programs[it.name]],
        folder,
        seconds=seconds,
        limits=limits or {},
        environment={**os.environ, "OUT": str(folder)},
    )
    return {name: (result.result, result.said) for name, result in found.items()}


def says(name: str, said: str, code: int = 0) -> str:
    left = f"pathlib.Path(os.environ['OUT'], '{name}.said').write_text({said!r})"
    return f"import os, pathlib, sys; {left}; sys.exit({code})"


def test_each_step_has_a_result_and_those_that_held_are_not_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = {
        "first": says("first", "all right"),
        "second": says("second", "it is wrong", 1),
        "third": says("third", "there is none", EXIT_SKIPPED),
        "fourth": "raise SystemExit(3)",
    }
    expected = {
        "first": ("ok", "all right"),
        "second": ("failed", "it is wrong"),
        "third": ("skipped", "there is none"),
        "fourth": ("failed", "it ended with 3"),
    }
    assert run(tmp_path, programs) == expected
    kept = json.loads((tmp_path / RESULTS).read_text())["steps"]
    assert {name: (it["result"], it["said"]) for name, it in kept.items()} == expected
    assert all(it["seconds"] > 0 and it["limit"] == 60 for it in kept.values())
    again = {**programs, "first": "raise SystemExit('it was begun again')", "second": says("second", "now")}
    assert run(tmp_path, again) == {**expected, "second": ("ok", "now")}
    assert "== first: ok before" in capsys.readouterr().out


def test_a_step_over_its_limit_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text(
        "import os, pathlib, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "pathlib.Path(os.environ['OUT'], 'pids').write_text(f'{os.getpid()} {child.pid}')\n"
        "time.sleep(600)\n"
    )
    program = f"exec(open({str(tmp_path / 'hangs.py')!r}).read())"
    found = run(tmp_path, {"hangs": program, "next": says("next", "went on")}, limits={"hangs": 5.0})
    assert found == {"hangs": ("failed", "it took more than 5 s"), "next": ("ok", "went on")}
    if (tmp_path / "pids").exists():  # else it was killed before it came so far
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        wait_until(lambda: not any(_lives(pid) for pid in pids))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_no_step_is_begun_when_the_time_is_up(tmp_path: Path) -> None:
    assert run(tmp_path, {"late": says("late", "ran")}, seconds=0.0) == {
        "late": ("skipped", "no time is left")
    }


@pytest.mark.parametrize("content", ["", "[]", '{"steps": {"a": {"result": 1}}}', '{"steps": 3}'])
def test_results_that_cannot_be_read_are_none(tmp_path: Path, content: str) -> None:
    (tmp_path / RESULTS).write_text(content)
    assert read_results(tmp_path) == {}
    assert read_results(tmp_path / "nowhere") == {}


def test_what_a_step_says_is_left_for_the_process_that_timed_it(tmp_path: Path) -> None:
    def of(*raised: Exception) -> Step:
        def tried(folder: Path, device: str) -> str:
            for error in raised:
                raise error
            return f"fine on {device}"

        return Step("a", 1.0, tried)

    codes: Sequence[tuple[int, str]] = [
        (run_one(of(*raised), tmp_path, "cpu"), (tmp_path / "a.said").read_text())
        for raised in ([], [StepSkipped("none here")], [StepFailed("wrong")])
    ]
    assert codes == [(0, "fine on cpu"), (EXIT_SKIPPED, "none here"), (1, "wrong")]
    assert Result("ok", 1.0, 2.0).said == ""
