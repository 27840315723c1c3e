"""junit.xml: every planned run as a test case, for the CI systems that show such files.

The elements and attributes are those that Jenkins' xUnit schema (junit-10.xsd) permits; GitLab and others
read a part of them. What such a file cannot hold, such as means over seeds, is in summary.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

from kharness.config.writing import readable
from kharness.report.collection import CellResult
from kharness.report.runs import fields_in
from kharness.report.summary import Summary
from kharness.runs.matrix_plan import refused
from kharness.runs.output_tail import output_tail
from kharness.runs.status import FAILED, PENDING, QUEUED, RUNNING, SILENT, Attempt

# Not (yet) judged: neither passed nor failed.
_SKIPPED = (PENDING, QUEUED, RUNNING, SILENT)


def as_junit(summary: Summary) -> str:
    """The file's content, in UTF-8.

    A complete run passes. Pending and running ones, those stopped early by the matrix itself, cells that the
    option tree refused, and known failures (quarantine) are skipped, each with its reason; every other run
    is a failure with its cause and the end of its output. `time` is the wall time of all attempts in
    seconds. An attempt that failed before the run completed is a `flakyFailure`, as Maven Surefire has it.
    """
    cases = [_case(cell, summary) for cell in summary.cells]
    cases += [_refused_case(name, reason, summary) for name, reason in refused(summary.plan).items()]
    suite = ElementTree.Element("testsuite", name=summary.title)
    counts = {
        "tests": len(cases),
        "failures": _count(cases, "failure"),
        "errors": 0,
        "skipped": _count(cases, "skipped"),
    }
    seconds = sum(float(case.get("time", 0)) for case in cases)
    for name, value in counts.items():
        suite.set(name, str(value))
    suite.set("time", f"{seconds:.3f}")
    created = summary.plan.get("created")
    if isinstance(created, (int, float)):
        suite.set("timestamp", datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%S"))
    suite.append(_properties(summary, cases))
    suite.extend(cases)
    root = ElementTree.Element("testsuites", name="kharness")
    for name in ("tests", "failures", "errors", "time"):
        root.set(name, suite.get(name, ""))
    root.append(suite)
    ElementTree.indent(root)
    content: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return content.decode() + "\n"


def _case(cell: CellResult, summary: Summary) -> ElementTree.Element:
    run = cell.run
    case = _new_case(cell.name, summary)
    seconds = [attempt.seconds for attempt in run.tried if attempt.seconds is not None]
    case.set("time", f"{sum(seconds):.3f}")
    if run.complete:
        _add_attempts(case, "flakyFailure", run.failed_attempts)
        return case
    cause = run.cause or run.status
    message = f"{run.status}: {run.reason}" if run.reason else run.status
    if run.status in _SKIPPED or run.stopped_early:
        _add(case, "skipped", cause, message)
    elif cell.known_failure:
        _add(case, "skipped", "quarantine", f"known failure ({cell.known_failure}); {message}")
    else:
        _add(case, "failure", cause, message).text = output_tail(run.directory)
        _add_attempts(case, "rerunFailure", run.failed_attempts)
    return case


def _refused_case(name: str, reason: str, summary: Summary) -> ElementTree.Element:
    case = _new_case(name, summary)
    _add(case, "skipped", "refused", reason)
    return case


def _new_case(name: str, summary: Summary) -> ElementTree.Element:
    """Grouped by model, as other tests are by class."""
    model = str(summary.plan.get("model") or "run")
    return ElementTree.Element("testcase", name=readable(name), classname=model)


def _add(case: ElementTree.Element, kind: str, cause: str, message: str) -> ElementTree.Element:
    return ElementTree.SubElement(case, kind, type=readable(cause), message=readable(message))


def _add_attempts(case: ElementTree.Element, kind: str, attempts: Sequence[Attempt]) -> None:
    for attempt in attempts:
        _add(case, kind, attempt.cause or FAILED, attempt.reason or f"exit code {attempt.exit_code}")


def _properties(summary: Summary, cases: Sequence[ElementTree.Element]) -> ElementTree.Element:
    """Return what was run, the code revision, and the runs that completed only in a later attempt."""
    found = {f"axis.{symbol}": "|".join(values) for symbol, values in summary.axes.items()}
    git, versions = fields_in(summary.plan, "git"), fields_in(summary.plan, "versions")
    if git.get("revision"):
        found["git.revision"] = str(git["revision"])
        if git.get("diff_sha256"):
            found["git.diff_sha256"] = str(git["diff_sha256"])
    found |= {f"version.{name}": str(version) for name, version in versions.items() if version}
    unstable = [case.get("name", "") for case in cases if case.find("flakyFailure") is not None]
    if unstable:
        found["unstable"] = " ".join(unstable)
    element = ElementTree.Element("properties")
    for name, value in found.items():
        ElementTree.SubElement(element, "property", name=readable(name), value=readable(value))
    return element


def _count(cases: Sequence[ElementTree.Element], kind: str) -> int:
    return sum(case.find(kind) is not None for case in cases)
