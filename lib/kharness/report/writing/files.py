"""The files of a report; summary.json, .csv and .md: the same numbers for programs, spreadsheets and people.

All follow from the run directories alone: the same input gives the same bytes.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from kharness.config.writing import Writing, attributes, in_markdown, list_item, markdown_list
from kharness.report.collection import REPLICATE_AXIS, CellResult, Variant
from kharness.report.comparison_table import (
    EXPLANATION,
    comparison,
    each_run,
    incomplete_lines,
    quarantined_lines,
    unexpected,
    unstable_words,
)
from kharness.report.graphs import shows_numbers, warnings_of
from kharness.report.overview.compared import versions_words
from kharness.report.runs import fields_in
from kharness.report.summary import Summary
from kharness.report.writing.caveats import caveat_lines, other_sources, other_work_json
from kharness.report.writing.conclusion_files import (
    CONCLUSION_COLUMNS,
    conclusion_values,
    conclusions_json,
    conclusions_markdown,
)
from kharness.report.writing.conclusion_tables import aggregates_caption, aggregates_table
from kharness.report.writing.gpu_tables import EXPLANATION as GPU_EXPLANATION
from kharness.report.writing.gpu_tables import gpus_json, gpus_table, said_of_gpus
from kharness.report.writing.html import html_parts
from kharness.report.writing.junit import as_junit
from kharness.runs.files import (
    GRAPHS,
    JUNIT_XML,
    OUTPUT_LOG,
    REPORT_HTML,
    SUMMARY_CSV,
    SUMMARY_JSON,
    SUMMARY_MD,
)
from monitoring.alert_sentences import alert_lines, alerts_of
from monitoring.counts import counted
from monitoring.journal.atomic_file import replacing

FILES: Mapping[str, Callable[[Summary], str | Iterable[str]]] = {
    SUMMARY_JSON: lambda summary: json_parts(as_json(summary)),
    SUMMARY_CSV: lambda summary: as_csv(summary),
    SUMMARY_MD: lambda summary: as_markdown(summary),
    JUNIT_XML: as_junit,
    REPORT_HTML: html_parts,
}
"""File -> its writer, whole or part by part: a page about ten thousand runs need not fit into memory."""


def write_files(summary: Summary, writing: Writing) -> None:
    """Write the five files into the summary's directory.

    One whose content cannot be made is missing, and the others say so.
    """
    for _ in range(2):  # the first of them cannot know yet that a later one fails
        before, tried = len(warnings_of(summary)), Writing()
        for name, make in FILES.items():
            tried.write(partial(_write, summary, name, make))
        if len(warnings_of(summary)) == before:
            break
    writing.take(tried)


def _write(summary: Summary, name: str, make: Callable[[Summary], str | Iterable[str]]) -> list[Path]:
    path = summary.directory / name
    with contextlib.suppress(_NotMade):
        with replacing(path) as file:
            failed = summary.part(name, partial(_fill, file, make, summary), _NotMade())
            if failed is not None:
                raise failed
        return [path]
    path.unlink(missing_ok=True)  # an earlier one would show other numbers than the files beside it
    return []


class _NotMade(Exception):
    """The content of a file failed, which is a warning."""


def _fill(file: BinaryIO, make: Callable[[Summary], str | Iterable[str]], summary: Summary) -> OSError | None:
    """Write the parts of a file as they are made; returns what prevents that."""
    made = make(summary)
    for part in [made] if isinstance(made, str) else made:
        text = part.encode()
        try:
            file.write(text)
        except OSError as error:
            return error
    return None


def json_parts(content: Mapping[str, object]) -> Iterator[str]:
    """Yield what json.dumps with an indent of 2 returns, a list of it that is an iterator one by one."""
    lead = "{"
    for name, value in content.items():
        yield f"{lead}\n  {json.dumps(name)}: "
        if isinstance(value, Iterator):
            yield from _list_parts(value)
        else:
            yield _indented(value, 2)
        lead = ","
    yield "\n}\n"


def _list_parts(values: Iterator[object]) -> Iterator[str]:
    lead = "["
    for value in values:
        yield f"{lead}\n    {_indented(value, 4)}"
        lead = ","
    yield "[]" if lead == "[" else "\n  ]"


def _indented(value: object, by: int) -> str:
    return json.dumps(value, indent=2, allow_nan=False).replace("\n", "\n" + " " * by)


def as_json(summary: Summary) -> dict[str, object]:
    """Unrounded numbers in the unit named next to them; null is what was not measured.

    The longest lists are iterators.
    """
    statuses = [cell.run.status for cell in summary.cells]
    return {
        "name": summary.title,
        "model": summary.plan.get("model"),
        "git": summary.plan.get("git"),
        "other_sources": other_sources(summary),
        "versions": summary.plan.get("versions"),
        "axes": [{"symbol": symbol, "values": values} for symbol, values in summary.axes.items()],
        "replicate_axis": REPLICATE_AXIS if REPLICATE_AXIS in summary.axes else None,
        "num_runs": {status: statuses.count(status) for status in sorted(set(statuses))},
        "metrics": {
            metric.name: {"unit": metric.unit, "meaning": metric.meaning} for metric in summary.all_metrics
        },
        "variants": (_variant_json(variant, summary) for variant in summary.variants),
        "other_work": other_work_json(summary),
        **conclusions_json(summary.conclusions),
        "aggregates": [
            asdict(one) for one in summary.part("scores over workloads", lambda: summary.aggregates, [])
        ],
        "alerts": summary.part("alerts", partial(_alerts_json, summary), []),
        "warnings": warnings_of(summary),
        "runs": (_run_json(cell, summary) for cell in summary.cells),
    }


def _alerts_json(summary: Summary) -> list[dict[str, object]]:
    return [asdict(alert) for directory in summary.run_directories for alert in alerts_of(directory)]


def as_csv(summary: Summary) -> str:
    """One row per variant: axes, what became of its runs, every metric, then what is concluded.

    Of a metric n, mean, deviation and the interval of the mean.
    """
    axes, conclusions = summary.variant_axes, summary.conclusions
    header = ["variant", *axes, "num_planned", "num_complete"]
    header += ["num_unstable", "num_stopped_early", "num_known_failures"]
    header += [
        f"{m.name}_{part}" for m in summary.all_metrics for part in ("n", "mean", "std", "low", "high")
    ]
    header += CONCLUSION_COLUMNS
    rows: list[Sequence[object]] = [header]
    for variant in summary.variants:
        row: list[object] = [variant.label, *(variant.values.get(axis) for axis in axes)]
        runs = [cell.run for cell in variant.cells]
        row += [len(runs), len(variant.complete)]
        row += [sum(run.unstable for run in runs), sum(run.stopped_early for run in runs)]
        row.append(sum(bool(cell.known_failure) and not cell.run.complete for cell in variant.cells))
        for metric in summary.all_metrics:
            found, interval = variant.statistic(metric), conclusions.intervals[variant.label][metric.name]
            row += [found.n, found.mean, found.std]
            row += [interval.low, interval.high] if interval else [None, None]
        rows.append([*row, *conclusion_values(conclusions, variant.label)])
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def as_markdown(summary: Summary) -> str:
    """A self-contained page that shows the graphs in the same folder."""
    parts = [
        f"# {in_markdown(summary.title)}",
        *_facts(summary),
        "## Comparison",
        comparison(summary).markdown(),
        EXPLANATION,
        *markdown_list(caveat_lines(summary)),
        *summary.part("conclusions", partial(conclusions_markdown, summary.conclusions), []),
        *summary.part("scores over workloads", partial(_aggregates, summary), []),
    ]
    incomplete = list(zip(incomplete_lines(summary), unexpected(summary), strict=True))
    if incomplete:
        parts.append(f"## Not complete: {len(incomplete)} of {len(summary.cells)}")
        parts.append("\n".join(list_item(f"{in_markdown(line)}; {_log(cell)}") for line, cell in incomplete))
    known = quarantined_lines(summary)
    if known:
        parts.append(f"## Known failures (quarantine): {len(known)}")
        parts += markdown_list(known)
    parts += ["## Runs", each_run(summary).markdown(), *markdown_list(_remarks(summary))]
    alerts = summary.part("alerts", partial(alert_lines, summary.run_directories), [])
    if alerts:
        parts += ["## Alerts", *markdown_list(alerts)]
    parts += summary.part("GPUs", partial(_gpus, summary), [])
    graphs = [path for path in sorted((summary.directory / GRAPHS).glob("*.png")) if shows_numbers(path)]
    if graphs:
        parts.append("## Graphs")
        parts += [f"![{path.stem.replace('_', ' ')}](graphs/{path.name})" for path in graphs]
        parts.append("The numbers in each graph are in the CSV file of the same name.")
    failed = warnings_of(summary)
    if failed:
        parts += ["## Not in this report", *markdown_list(failed)]
    return "\n\n".join(parts) + "\n"


def _aggregates(summary: Summary) -> list[str]:
    found = summary.aggregates
    if not found:
        return []
    caption = aggregates_caption(in_markdown(found[0].variant), summary.settings.confidence)
    return ["## Over all workloads", aggregates_table(found).markdown(), caption]


def _facts(summary: Summary) -> list[str]:
    """Return what was compared, and the code revision."""
    lines = [f"axis {symbol}: {', '.join(values)}" for symbol, values in summary.axes.items()]
    git, versions = fields_in(summary.plan, "git"), versions_words(summary.plan)
    if summary.plan:
        lines.append(f"model {summary.plan.get('model')}")
    if git.get("revision"):
        changed = (
            f" with uncommitted changes {str(git['diff_sha256'])[:12]}" if git.get("diff_sha256") else ""
        )
        lines.append(f"revision {git['revision']}{changed}")
    lines += [versions] if versions else []
    return markdown_list(lines)


def _gpus(summary: Summary) -> list[str]:
    gpus = gpus_table(summary)
    if gpus is None:
        return []
    return ["## GPUs", gpus.markdown(), GPU_EXPLANATION, *markdown_list(said_of_gpus(summary))]


def _remarks(summary: Summary) -> list[str]:
    """Return remarks that a table of numbers hides."""
    remarks = []
    for cell in summary.cells:
        run = cell.run
        if run.unstable:
            remarks.append(unstable_words(cell))
        if run.nonfinite_records:
            records = counted(run.nonfinite_records, "record")
            remarks.append(f"{cell.name}: {records} with a value that is not finite")
    return remarks


def _log(cell: CellResult) -> str:
    log = cell.run.directory / OUTPUT_LOG
    if not log.exists():
        return "no output"
    link = f"{quote(cell.name)}/{OUTPUT_LOG}" if cell.values else OUTPUT_LOG
    return f"[output]({link})"


def _variant_json(variant: Variant, summary: Summary) -> dict[str, object]:
    intervals = summary.conclusions.intervals[variant.label]
    return {
        "label": variant.label,
        "values": variant.values,
        "num_planned": len(variant.cells),
        "num_complete": len(variant.complete),
        "metrics": {
            metric.name: {
                **attributes(found, "n", "mean", "std"),
                "low": interval.low if interval else None,
                "high": interval.high if interval else None,
            }
            for metric in summary.all_metrics
            for found, interval in [(variant.statistic(metric), intervals[metric.name])]
        },
        "runs": [cell.name for cell in variant.cells],
    }


def _run_json(cell: CellResult, summary: Summary) -> dict[str, object]:
    run = cell.run
    return {
        **attributes(cell, "name", "values"),
        "status": run.status,
        "reason": run.reason or None,
        **attributes(run, "cause", "attempts", "unstable"),
        "known_failure": cell.known_failure or None,
        **attributes(run, "last_step", "num_steps", "nonfinite_records"),
        "metrics": {metric.name: cell.number(metric) for metric in summary.all_metrics},
        "gpus": gpus_json(cell),
    }
