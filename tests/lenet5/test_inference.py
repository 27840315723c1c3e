"""After training, where configured: latency and accuracy by batch size, and predictions with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image

from lenet5.data import undone
from lenet5.train import main
from monitoring import read_records

FIXED = ["--device", "cpu", "--num-threads", "1", "--tracker", "none", "--dataset", "mnist-subset"]


def test_a_trained_model_is_timed_and_shows_predictions(tmp_path: Path) -> None:
    wanted = ["--lenet5-latency-batches", "8 100", "--lenet5-predictions", "9"]
    assert main(["--run-dir", str(tmp_path / "run"), *FIXED, "--max-steps", "1", *wanted]) == 0
    records: list[dict[str, Any]] = [record for record, _ in read_records(tmp_path / "run/metrics.jsonl")]
    (found,) = (record for record in records if record.get("split") == "inference")
    names = ("latency_seconds", "samples_per_sec", "accuracy")
    fields = [name for name in found if name.startswith("batch_")]
    assert fields == [f"batch_{size}_{name}" for size in (8, 100) for name in names]
    assert [sorted(one) for one in found["predictions"]] == [["label", "predicted", "probability"]] * 9
    assert {one["label"] for one in found["predictions"]} <= set("0123456789")
    assert found["pictures"] == {"predictions": "predictions.png"}
    with Image.open(tmp_path / "run/predictions.png") as sheet:
        assert sheet.format == "PNG"


def test_the_bytes_of_images_come_back() -> None:
    every = torch.arange(256).reshape(1, 1, 16, 16)
    normalized = every.float().div(255).sub(0.1307).div(0.3081)
    assert torch.equal(undone(normalized), every.byte().expand(-1, 3, -1, -1))
