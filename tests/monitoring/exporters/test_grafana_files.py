"""The dashboard and the alert rules as files: documented, whole and without contradictions."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from monitoring.journal.fields import prometheus_rows

DASHBOARD = "lib/monitoring/grafana/dashboards/gpu-training-dashboard.json"
RULES = "lib/monitoring/grafana/gpu-training.rules.yml"
RECORDED = "lib/monitoring/grafana/gpu-training-recorded.rules.yml"

# Grafana's names of the units that the metrics have; mbytes are MiB.
UNITS = {"none", "short", "percent", "percentunit", "s", "ops", "celsius", "watt", "joule", "mbytes", "Bps"}

# What Grafana puts in for these itself.
BUILT_IN = {"__rate_interval"}

COLUMNS = 24


@pytest.fixture
def dashboard(root: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((root / DASHBOARD).read_text())
    return loaded


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in panels(dashboard) for target in panel["targets"]]


def metrics_in(query: str) -> set[str]:
    return set(
        re.findall(
            r"\b(?:gpu|kharness|training|validation|learning|gradient|memory)_\w+",
            re.sub(r'"[^"]*"', "", query),
        )
    )


def test_every_panel_is_documented(dashboard: dict[str, Any], root: Path) -> None:
    text = (root / "docs/prometheus.md").read_text().partition("## Dashboard")[2].partition("## Alert")[0]
    rows = re.findall(r"^\| (.+?) \| (\w+) \| (.+) \|$", text, flags=re.MULTILINE)
    documented = {
        (title, kind): {
            "training_step_duration_seconds" + name if name.startswith("_") else name
            for name in re.findall(r"`(\w+)`", content)
        }
        for title, kind, content in rows
        if title != "panel"
    }
    assert documented == {
        (panel["title"], panel["type"]): set().union(*(metrics_in(it["expr"]) for it in panel["targets"]))
        for panel in panels(dashboard)
    }


def test_panels_have_ids_of_their_own_and_do_not_overlap(dashboard: dict[str, Any]) -> None:
    every = dashboard["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    places = {panel["title"]: panel["gridPos"] for panel in every}
    assert [title for title, at in places.items() if at["x"] + at["w"] > COLUMNS] == []
    overlapping = [
        (one, other)
        for (one, a), (other, b) in itertools.combinations(places.items(), 2)
        if a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"]
        if a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]
    ]
    assert overlapping == []


def test_everything_is_asked_of_the_chosen_prometheus(dashboard: dict[str, Any]) -> None:
    [source] = [it for it in dashboard["templating"]["list"] if it["type"] == "datasource"]
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    asking = [
        *panels(dashboard),
        *(target for panel in panels(dashboard) for target in panel["targets"]),
        *(variable for variable in dashboard["templating"]["list"] if variable["type"] == "query"),
        *dashboard["annotations"]["list"],
    ]
    assert [it for it in asking if it["datasource"] != chosen] == []


def test_queries_use_metrics_and_variables_that_there_are(dashboard: dict[str, Any]) -> None:
    shown = set()
    for family in prometheus_rows():
        shown |= {family, *(f"{family}_{part}" for part in ("bucket", "sum", "count"))}
    assert {name for query in queries(dashboard) for name in metrics_in(query)} - shown == set()
    variables = {variable["name"] for variable in dashboard["templating"]["list"]} | BUILT_IN
    assert {name for query in queries(dashboard) for name in re.findall(r"\$(\w+)", query)} <= variables


def test_expensive_queries_are_recorded_and_documented(dashboard: dict[str, Any], root: Path) -> None:
    recorded = re.findall(r"- record: (\S+)\n", (root / RECORDED).read_text())
    asked = {name for query in queries(dashboard) for name in re.findall(r"\brun\w*:[\w:]+", query)}
    assert asked == set(recorded) - {"run:gpu_power_draw_watts:sum"}, "which is of the docs' own query"
    expensive = [query for query in queries(dashboard) if "histogram_quantile" in query or "group_" in query]
    assert expensive == []
    section = (
        (root / "docs/prometheus.md").read_text().partition("## Recording rules")[2].partition("\n## ")[0]
    )
    documented = []
    for cell in re.findall(r"^\| (`.+?`) \|", section, flags=re.MULTILINE):
        first, *others = re.findall(r"`([\w:]+)`", cell)
        documented += [first, *(first.rpartition(":")[0] + other for other in others)]
    assert documented == recorded


def test_units_and_thresholds_are_such_as_grafana_knows(dashboard: dict[str, Any]) -> None:
    for panel in panels(dashboard):
        defaults = panel["fieldConfig"]["defaults"]
        unit = defaults.get("unit") or panel["options"]["yAxis"]["unit"]
        assert unit in UNITS, panel["title"]
        steps = [step["value"] for step in defaults.get("thresholds", {}).get("steps", [])]
        assert steps[:1] in ([], [None]), panel["title"]
        assert steps[1:] == sorted(steps[1:]), panel["title"]


def test_red_begins_where_the_alert_rules_do(dashboard: dict[str, Any], root: Path) -> None:
    rules = (root / RULES).read_text()
    red = {
        panel["title"]: step["value"]
        for panel in panels(dashboard)
        for step in panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        if step["color"] == "red"
    }
    assert red == {
        "Alerts": 1,
        "Gradient norm": 10,
        "GPU temperature": 80,
        "Temperature over time": 80,
        "GPU memory share": 90,
    }
    for expression in (
        "(gpu_temperature_celsius) > 80",
        "gpu_memory_total_mb) > 90",
        "(gradient_norm[1m])) > 10",
    ):
        assert expression in rules


def test_every_alert_is_documented_with_its_delay(root: Path) -> None:
    rules = re.findall(r"- alert: (\w+)\n(.*?)labels:", (root / RULES).read_text(), flags=re.DOTALL)
    shipped = {name: re.findall(r"^ +for: (\w+)$", rule, flags=re.MULTILINE) for name, rule in rules}
    rows = re.findall(
        r"^\| `(\w+)` \| .* \| (.+) \|$", (root / "docs/prometheus.md").read_text(), flags=re.MULTILINE
    )
    delays = {"at once": [], "1 min": ["1m"], "5 min": ["5m"]}
    documented = {name: delays[delay] for name, delay in rows if delay in delays}
    assert documented == shipped
