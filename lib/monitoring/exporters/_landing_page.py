"""The page at the root of an exporter: its version, which runs it shows, and where."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from monitoring.counts import counted
from monitoring.exporters._families import ShownRun, version
from monitoring.host.name import host_name


def landing_page(runs: Sequence[ShownRun]) -> str:
    """Return a page of HTML; names of runs and projects are text in it, whatever they hold."""
    rows = "".join(
        f"<tr><td>{escape(run.name)}<td>{escape(str(run.run['tracking']['project']))}<td>{escape(run.host)}"
        f"<td>{'training' if run.is_running() else 'not training'}\n"
        for run in runs
    )
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>kharness exporter</title>\n'
        f"<h1>kharness exporter</h1>\n<p>Version {escape(version())} on {escape(host_name())}\n"
        f'<p><a href="/metrics">Metrics</a> for Prometheus, of {counted(len(runs), "run")}\n'
        f"<table><tr><th>run<th>project<th>host<th>state\n{rows}</table>\n"
    )
