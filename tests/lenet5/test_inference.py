"""After training, where configured: latency and accuracy by batch size, and predictions with pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from kharness.training.data import LabeledImages
from kharness.training.datasets.mnist_subset import Options, load
from kharness.training.inference.predictions import infer
from lenet5.data import Splits
from lenet5.model import LeNet5
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


@pytest.fixture(scope="module")
def splits(root: Path) -> Splits:
    test = LabeledImages(torch.rand(20, 1, 28, 28), torch.arange(20) % 10)
    return Splits(test, test, test, load(Options(), root))


@pytest.mark.parametrize(
    ("outputs", "note"),
    [
        (lambda logits: (logits, logits[:, 0]), ""),
        (lambda logits: {"mass": logits[:, 0], "logits": logits}, ""),
        (
            lambda logits: {"mass": logits[:, 0]},
            "note: latency and predictions need logits, and the model returns a dict\n",
        ),
    ],
    ids=["tuple", "dict", "no-logits"],
)
def test_a_model_of_several_outputs_is_judged_by_its_logits(
    outputs: Callable[[Tensor], object], note: str, splits: Splits, capsys: pytest.CaptureFixture[str]
) -> None:
    class Several(LeNet5):
        def forward(self, images: Tensor) -> Any:
            return outputs(super().forward(images))

    torch.manual_seed(1)
    one, several = LeNet5(), Several()
    several.load_state_dict(one.state_dict())

    def judged(model: nn.Module) -> tuple[float | None, list[dict[str, object]], bytes | None]:
        measured, predictions, picture = infer(
            model, splits.test, classes="0123456789", undone=splits.undone, batch_sizes=[5], predictions=4
        )
        return measured.get("batch_5_accuracy"), predictions, picture

    assert judged(several) == ((None, [], None) if note else judged(one))
    assert capsys.readouterr().out == note


def test_the_bytes_of_images_come_back(splits: Splits) -> None:
    every = torch.arange(256).reshape(1, 1, 16, 16)
    normalized = every.float().div(255).sub(0.1307).div(0.3081)
    assert torch.equal(splits.undone(normalized), every.byte().expand(-1, 3, -1, -1))
