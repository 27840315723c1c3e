"""The rows of fields: complete, free of contradictions, and the only table of metrics."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitoring.agent.sample_threads.gpu_stats import GpuStats
from monitoring.gpu.aggregates import AGGREGATE_POINTS, gpu_points
from monitoring.gpu.options import GpuMonitorOptions
from monitoring.gpu.sample import GpuSample
from monitoring.journal.fields import is_result, row_of, rows_at
from monitoring.journal.fields.row import (
    EVERY,
    GAP,
    GPU,
    MEASURED,
    OF_GPU,
    OF_GPUS,
    START,
    SYSTEM,
    TRACKERS,
    UNKNOWN_UNIT,
    FieldRow,
)
from monitoring.journal.fields.table import FIELDS
from monitoring.journal.records import MEASURING, read_records
from monitoring.samplers.machine import MachineSample

# Module -> why names of metrics stand side by side in it, without anything being said of them.
LISTS_OF_NAMES = {
    "kharness.report.compare": "which rows the comparison of two sides has, in their order",
    "kharness.report.gpu.history": "which values of a sample reports keep, by their short names there",
    "kharness.report.judging.conclusions": "which costs a result is set against, in their order",
    "kharness.report.plots.run_plots": "which curves a run's page has first, and which not",
    "kharness.report.runs": "which series a page draws where there are few runs",
    "kharness.report.writing.page_pictures": "which graphs stand in which part of a page",
    "kharness.training.first_run.trainings": "which times of a step have to be there on a GPU",
    "monitoring.callbacks.logged": "what other frameworks and their examples call them",
    "monitoring.exporters._families": "how a rank's state gives the value of each",
    "monitoring.exporters.verbose_log": "what the documented entries call them",
    "monitoring.gpu.aggregates": "which value of a sample each point in trackers is; below the rows' floor",
    "monitoring.gpu.history": "which values of a sample statistics are made of",
    "monitoring.gpu_monitor.lines": "which values of a sample its documented lines have",
    "monitoring.rules.memory_leak": "what each is in a message, in megabytes",
    "monitoring.samplers._nvml_gpm": "which number of the driver's is which value",
    "monitoring.samplers._nvml_reading": "which values a call of the driver's writes, in their order",
    "monitoring.telemetry.load_balance": "what its table calls the phases of a step",
    "monitoring.telemetry.phases": "the phases in the order of a step, by which loops mark them",
    "monitoring.terminal.panels.run_panel": "which numbers of a run have room beside its graphs",
    "monitoring.terminal.run_view": "which graph is the second one until a person chooses, in their order",
    "monitoring.verbose_logging.resources": "which value of a sample each documented name is",
}


def names_at(place: str) -> set[str]:
    return {row.name for row in rows_at(place)}


def test_every_field_of_the_recorded_runs_has_a_row(root: Path) -> None:
    journals = sorted(root.glob("tests/data/**/metrics.jsonl"))
    assert len(journals) == 4
    for journal in journals:
        for record, _ in read_records(journal):
            assert set(record) - names_at(EVERY) - names_at(str(record["event"])) == set()


def test_every_value_of_a_gpu_sample_has_a_row(tmp_path: Path) -> None:
    gpus = [GpuSample(index, None, None, "nvidia", "ok", memory_used_mb=1.0) for index in (0, 1)]
    stats = GpuStats(tmp_path, GpuMonitorOptions(), run_id="0" * 16, attempt=1, started=0.0, host="h")
    record: Any = stats.append(gpus, time=1.0, global_step=1)
    stats.close()
    assert set(GpuSample._fields) == names_at(OF_GPU)
    assert set(record["aggregate_stats"]) == names_at(OF_GPUS)
    assert set(record) - names_at(EVERY) == names_at(GPU)
    points = {*gpu_points(record), *AGGREGATE_POINTS}
    assert {name for name in points if TRACKERS not in row_of(name).about} == set()


def test_every_value_of_a_sample_of_the_machine_has_a_row() -> None:
    envelope = {"correlation_id", "host"}
    assert {*MachineSample._fields, *envelope} == names_at(SYSTEM)
    assert {row.unit for row in rows_at(SYSTEM) if row.name.endswith("_gb")} == {"GB"}
    assert {row.unit for row in rows_at(SYSTEM) if row.name.endswith("_percent")} == {"%"}


def test_sampled_values_have_the_units_of_the_docs(root: Path) -> None:
    page = (root / "docs/gpu-monitoring.md").read_text().partition("## What is sampled")[2]
    found = re.findall(r"^\| (`[^|]*`) \|([^|]*)\|", page.partition("\n`aggregate_stats`")[0], flags=re.M)
    documented = {name: unit.strip() for names, unit in found for name in re.findall(r"`(\w+)`", names)}
    rows = {row.name: row.unit.replace("MiB", "MB") for row in rows_at(OF_GPU)}
    assert documented.keys() == rows.keys()
    assert {name: unit for name, unit in documented.items() if rows[name] not in (unit, "")} == {}


def test_no_row_contradicts_another() -> None:
    places = [(row.name, place) for row in FIELDS for place in row.about]
    assert len(set(places)) == len(places)
    shown = [row.prometheus for row in FIELDS if row.prometheus]
    assert len(set(shown)) == len(shown)
    units: dict[str, set[tuple[str, str]]] = {}
    for row in FIELDS:
        if not MEASURED.isdisjoint(row.about):
            units.setdefault(row.name, set()).add((row.unit, row.kind))
    assert {name: found for name, found in units.items() if len(found) > 1} == {}


def test_texts_are_words_of_a_table() -> None:
    texts = [text for row in FIELDS for text in row.about.values()]
    assert [text for text in texts if not text or text.endswith(".") or "|" in text or "\n" in text] == []


@pytest.mark.parametrize(
    ("name", "result"),
    [
        *dict.fromkeys(("train_loss", "lr", "grad_norm", "model_sha256", "val_perplexity"), True).items(),
        *dict.fromkeys(("my_count", "lost", "state", "seconds", "reward", "sparsity_percent"), True).items(),
        *dict.fromkeys(("time", "seq", "attempt", "checkpoint_path", "cpu_mem_rss_mb"), False).items(),
        *dict.fromkeys(("samples_per_sec", "sec_per_step", "training_cpu_seconds", "cost"), False).items(),
        *dict.fromkeys(("gpu_mem_allocated", "cuda_mem_peak", "mfu", "mfu_mean", "disk_gb"), False).items(),
        *dict.fromkeys(("step_mfu", "train_step_mfu", "tokens_per_second", "tflops"), False).items(),
        *dict.fromkeys(("eta_minutes", "rank000_steps_mean", "rank012_gpu_temperature_max"), False).items(),
        *dict.fromkeys(("backup_seconds", "io_per_sec", "total_joules", "fan_watts"), False).items(),
    ],
)
def test_reproduction_compares_results_and_what_nobody_knows(name: str, result: bool) -> None:
    assert is_result(name) is result


def test_field_without_a_row_has_an_unknown_unit_and_no_better() -> None:
    assert row_of("reward") == FieldRow("reward", UNKNOWN_UNIT, {}, "neither", "result")


@pytest.mark.parametrize(
    ("name", "better"),
    [("val_perplexity", "down"), ("aux_loss", "down"), ("step_mfu", "up"), ("val_loss_inverse", "neither")],
)
def test_names_say_which_way_is_better(name: str, better: str) -> None:
    assert row_of(name).better == better


def test_fields_of_measuring_records_are_found_by_name() -> None:
    measured = [row for event in MEASURING for row in rows_at(event)]
    assert [row.name for row in measured if row_of(row.name) is not row] == []


def test_writing_a_run_and_following_it_loads_no_rows() -> None:
    """A training and its agent start without them."""
    code = "import sys, monitoring.run, monitoring.agent.follow; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if name.startswith("monitoring.")}
    assert "monitoring.agent.follow" in loaded
    assert "monitoring.journal.fields" not in loaded


def lists_of_metrics(tree: ast.Module, known: set[str]) -> Iterator[int]:
    """The lines where three or more metrics are listed: in tuples, sets, and dicts.

    A dict with computed values in a function is a record that is being made.
    """
    constants = [node for node in tree.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    lasting = {id(inner) for node in constants for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.expr):
            continue
        parts: list[ast.expr | None] = []
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            for item in node.elts:
                parts += getattr(item.value, "elts", []) if isinstance(item, ast.Starred) else [item]
        elif isinstance(node, ast.Dict) and (id(node) in lasting or not computed(node)):
            parts = [*node.keys, *node.values]
        names = {part.value for part in parts if isinstance(part, ast.Constant)}
        if len(names & known) >= 3:
            yield node.lineno


def computed(table: ast.Dict) -> bool:
    return any(isinstance(node, (ast.Name, ast.Call)) for node in ast.walk(table))


def is_metric(row: FieldRow) -> bool:
    """Whether it is a number that people watch; not a text, an envelope, or what a gap or a start says."""
    judged = row.unit or row.better != "neither" or row.prometheus
    return bool(judged) and not {EVERY, START, GAP} & row.about.keys()


def test_nothing_else_lists_metrics(root: Path) -> None:
    known = {name for row in FIELDS if is_metric(row) for name in (row.name, row.prometheus) if name}
    found: dict[str, list[int]] = {}
    for folder in (root / "lib", root / "scripts", root / "lenet5"):
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(root).with_suffix("").parts).removeprefix("lib.")
            text = path.read_text()
            named = set(re.findall(r'"(\w+)"', text)) & known
            lines = list(lists_of_metrics(ast.parse(text), known)) if len(named) >= 3 else []
            if lines and module != "monitoring.journal.fields.table":
                found[module] = lines
    assert found.keys() == LISTS_OF_NAMES.keys(), f"what is known of a metric stands in its row: {found}"
