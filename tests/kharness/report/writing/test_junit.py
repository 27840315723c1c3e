"""junit.xml, read back by a parser that CI tools use, and held to the structure they document."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from junitparser import Error, Failure, Skipped
from junitparser.xunit2 import JUnitXml, TestCase

from kharness.report.summary import collect
from kharness.report.writing.junit import as_junit
from monitoring.host.name import host_name
from monitoring.host.process import process_started

from ..conftest import Make, MatrixDirectory

# Element -> (attributes it must have, attributes it may have, children it may have), a part of the schema by
# which Jenkins' xUnit plugin accepts or refuses a file (junit-10.xsd, jenkinsci/xunit-plugin).
STRUCTURE: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": (set(), {"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors"},
        {"time", "skipped", "timestamp"},
        {"properties", "testcase"},
    ),
    "properties": (set(), set(), {"property"}),
    "property": ({"name", "value"}, set(), set()),
    "testcase": (
        {"name"},
        {"classname", "time"},
        {"skipped", "failure", "flakyFailure", "rerunFailure"},
    ),
    "skipped": (set(), {"type", "message"}, set()),
    "failure": (set(), {"type", "message"}, set()),
    "flakyFailure": ({"type"}, {"message"}, set()),
    "rerunFailure": ({"type"}, {"message"}, set()),
}


def assert_structure(element: ElementTree.Element) -> None:
    must, may, children = STRUCTURE[element.tag]
    assert must <= element.attrib.keys() <= must | may
    assert {child.tag for child in element} <= children
    float(element.get("time", "0"))
    for child in element:
        assert_structure(child)


def cases(directory: Path) -> dict[str, TestCase]:
    content = as_junit(collect(directory))
    assert_structure(ElementTree.fromstring(content))
    (suite,) = JUnitXml.fromstring(content)
    found = {case.name: case for case in suite if isinstance(case, TestCase)}
    assert suite.tests == len(found)
    for kind, count in ((Failure, suite.failures), (Error, suite.errors), (Skipped, suite.skipped)):
        assert count == sum(isinstance(result, kind) for case in found.values() for result in case.result)
    return found


def results(case: TestCase) -> list[tuple[str, str, str]]:
    return [(type(one).__name__, one.type, one.message) for one in case.result]


def set_attempts(run: Path, status: str, *attempts: dict[str, Any]) -> None:
    blank = {"started": 1000.0, "ended": None, "exit_code": None, "signal": None, "reason": None}
    content = {"status": status, "attempts": [{**blank, "cause": None, **attempt} for attempt in attempts]}
    (run / "status.json").write_text(json.dumps(content))


def test_a_real_matrix_with_a_killed_run(root: Path, tmp_path: Path) -> None:
    recorded = shutil.copytree(root / "tests" / "data" / "recorded_matrix", tmp_path / "recorded_matrix")
    found = cases(recorded)
    assert {name: results(case) for name, case in found.items()} == {
        "optimizer-sgd_seed-1": [],
        "optimizer-sgd_seed-2": [],
        "optimizer-adamw_seed-1": [],
        "optimizer-adamw_seed-2": [("Failure", "killed", "killed: signal 9 (SIGKILL)")],
    }
    killed = found["optimizer-adamw_seed-2"]
    log = (recorded / "optimizer-adamw_seed-2" / "output.log").read_text()
    assert killed.result[0].text == log.rstrip("\n")
    assert killed.classname == "lenet5"
    assert killed.time == pytest.approx(5.681, abs=1e-9)


def test_the_suite_says_what_ran(matrix: MatrixDirectory) -> None:
    (suite,) = JUnitXml.fromstring(as_junit(collect(matrix.directory)))
    assert (suite.name, suite.tests, suite.failures, suite.time) == ("test_matrix_x", 4, 1, 40.0)
    assert {one.name: one.value for one in suite.properties()} == {
        "axis.OPTIMIZER": "sgd|adam",
        "axis.SEED": "1|2",
        "git.revision": "0123abcd",
        "git.diff_sha256": "fedcba9876543210",
        "version.python": "3.11.9",
        "version.torch": "2.13.0",
    }


def test_every_way_not_to_complete(tmp_path: Path, make: Make) -> None:
    seeds = [str(seed) for seed in range(1, 9)]
    made = make.matrix(tmp_path / "m", {"SEED": seeds})
    runs = [made.add({"SEED": seed}, make.training([2.0], [0.5])[:2]) for seed in seeds[:-1]]
    made.plan({"SEED": "8"})
    set_attempts(runs[0], "pending")
    alive = {"pid": os.getpid(), "host": host_name(), "process_started": process_started(os.getpid())}
    set_attempts(runs[1], "running", {"job": alive})
    set_attempts(
        runs[2], "failed", {"ended": 1002.5, "exit_code": 74, "cause": "disk_full", "reason": "full"}
    )
    set_attempts(runs[3], "interrupted", {"exit_code": 75, "cause": "stopped_early", "reason": "losing"})
    set_attempts(runs[4], "interrupted", {"exit_code": 75, "cause": "stopped", "reason": "Ctrl-C"})
    set_attempts(runs[5], "failed", {"exit_code": 1, "cause": "error", "reason": "exit code 1"})
    set_attempts(runs[6], "timeout", {"signal": 15, "cause": "timeout", "reason": "over 5 s"})
    plan = json.loads((made.directory / "matrix.json").read_text())
    plan["quarantine"] = [{"cell": "seed-6", "reason": "issue 12"}]
    plan["refused"] = [{"name": "seed-0", "values": {"SEED": "0"}, "reason": "SEED=0 is outside 1..8"}]
    (made.directory / "matrix.json").write_text(json.dumps(plan))
    assert {name: results(case) for name, case in cases(made.directory).items()} == {
        "seed-1": [("Skipped", "pending", "pending")],
        "seed-2": [("Skipped", "running", "running")],
        "seed-3": [("Failure", "disk_full", "failed: full")],
        "seed-4": [("Skipped", "stopped_early", "interrupted: losing")],
        "seed-5": [("Failure", "stopped", "interrupted: Ctrl-C")],
        "seed-6": [("Skipped", "quarantine", "known failure (issue 12); failed: exit code 1")],
        "seed-7": [("Failure", "timeout", "timeout: over 5 s")],
        "seed-8": [("Failure", "missing", "missing: it has no directory")],
        "seed-0": [("Skipped", "refused", "SEED=0 is outside 1..8")],
    }


def test_a_run_that_needed_a_retry_passes_as_flaky(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2", "3"]})
    first, second, third = (
        made.add({"SEED": seed}, make.training([2.0], [0.5], 0.5)) for seed in ("1", "2", "3")
    )
    killed = {"ended": 1003.0, "signal": 9, "cause": "signal", "reason": "signal 9 (SIGKILL)"}
    done = {"started": 1004.0, "ended": 1010.0, "exit_code": 0}
    set_attempts(first, "complete", killed, done)
    set_attempts(second, "failed", killed, {**killed, "started": 1005.0, "ended": 1006.0})
    # Neither a stop on request nor the death of the runner says anything about the run.
    stopped = {"ended": 1001.0, "exit_code": 75, "cause": "stopped"}
    set_attempts(third, "complete", stopped, {"cause": "runner_died"}, done)
    found = cases(made.directory)
    assert (results(found["seed-1"]), results(found["seed-3"])) == ([], [])
    flaky = [(one.type, one.message) for one in found["seed-1"].flaky_failures()]
    assert flaky == [("signal", "signal 9 (SIGKILL)")]
    assert list(found["seed-3"].flaky_failures()) == []
    assert results(found["seed-2"]) == [("Failure", "signal", "failed: signal 9 (SIGKILL)")]
    assert len(list(found["seed-2"].rerun_failures())) == 1
    assert [found[name].time for name in ("seed-1", "seed-2", "seed-3")] == [9.0, 4.0, 7.0]
    (suite,) = JUnitXml.fromstring(as_junit(collect(made.directory)))
    assert {one.name: one.value for one in suite.properties()}["unstable"] == "seed-1"
    statuses = [cell.run.shown_status for cell in collect(made.directory).cells]
    assert statuses == ["complete, unstable", "failed", "complete"]


def test_output_with_colors_progress_bars_and_torn_bytes_is_readable(matrix: MatrixDirectory) -> None:
    run = matrix.directory / "optimizer-adam_seed-2"
    (run / "output.log").write_bytes(
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07plain <&> ]]>\r\n"
        b"10%\r50%\r100%\r\n"
        b"bell \x07, nul \x00, torn \xc3\n"
    )
    (failure,) = cases(matrix.directory)["optimizer-adam_seed-2"].result
    assert failure.text == "red plain <&> ]]>\n100%\nbell \ufffd, nul \ufffd, torn \ufffd"


def test_only_the_end_of_a_long_output_is_kept(matrix: MatrixDirectory) -> None:
    log = matrix.directory / "optimizer-adam_seed-2" / "output.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))
    (failure,) = cases(matrix.directory)["optimizer-adam_seed-2"].result
    assert failure.text == "\n".join(f"line {n}" for n in range(950, 1000))
    log.write_text("é" * 9000)
    (failure,) = cases(matrix.directory)["optimizer-adam_seed-2"].result
    assert failure.text == "…" + "é" * 4096


def test_a_single_run_is_one_case(matrix: MatrixDirectory) -> None:
    found = cases(matrix.directory / "optimizer-sgd_seed-1")
    assert {name: results(case) for name, case in found.items()} == {"optimizer-sgd_seed-1": []}


def test_the_same_directories_give_the_same_bytes(matrix: MatrixDirectory) -> None:
    assert as_junit(collect(matrix.directory)) == as_junit(collect(matrix.directory))
