"""A report has a row of inference latency for each batch size, and the pictures of predictions."""

from __future__ import annotations

import base64
import io
from pathlib import Path

from PIL import Image

from kharness.report.summary import collect
from kharness.report.writing.html import as_html
from kharness.report.writing.page_pictures import inference_table

from ..conftest import Make


def test_latency_and_pictures_of_complete_runs_are_on_the_page(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1", "2"]})
    *records, end = make.training([2.0, 1.0], [0.5], 0.5)
    measured = {
        f"batch_{size}_{name}": value * size
        for size in (8, 64)
        for name, value in {"latency_seconds": 0.001, "samples_per_sec": 2.0, "accuracy": 0.01}.items()
    }
    inference = {"event": "eval", "global_step": 2, "split": "inference", **measured}
    made.add({"SEED": "1"}, [*records, inference, end])
    made.add({"SEED": "2"}, make.training([2.0, 1.0], [0.5], 0.5))
    picture = io.BytesIO()
    Image.new("RGB", (96, 48), "red").save(picture, "PNG")
    (run,) = made.directory.glob("*1")
    (run / "predictions.png").write_bytes(picture.getvalue())

    summary = collect(made.directory)
    table = inference_table(summary)
    assert table is not None
    assert table.rows == [
        ["seed-1", "8", "8.00", "16.00", "8.00"],
        ["seed-1", "64", "64.00", "128.00", "64.00"],
    ]
    page = as_html(summary)
    data = base64.b64encode(picture.getvalue()).decode()
    assert f'{data}" alt="predictions of seed-1" width="96" height="48"' in page
    assert page.count("Trained models at work") == 1


def test_a_report_without_any_has_no_such_part(tmp_path: Path, make: Make) -> None:
    made = make.matrix(tmp_path / "m", {"SEED": ["1"]})
    made.add({"SEED": "1"}, make.training([2.0, 1.0], [0.5], 0.5))
    summary = collect(made.directory)
    assert inference_table(summary) is None
    assert "Trained models at work" not in as_html(summary)
