"""Names that frameworks and scripts give to metrics, and ours."""

from __future__ import annotations

import pytest

from monitoring.callbacks.logged import recorded_name


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ("loss/train", "train_loss"),
        ("Loss/train", "train_loss"),
        ("Loss/test", "test_loss"),
        ("loss/val", "val_loss"),
        ("Accuracy/validation", "val_accuracy"),
        ("f1/eval", "val_f1"),
        ("BLEU/test", "test_BLEU"),
        ("val/loss", "val_loss"),
        ("val/ema/loss", "val_ema/loss"),
        ("ema/loss/val", "val_ema/loss"),
        ("max_val", "max_val"),
        ("acc/a", "acc/a"),
        ("val", "val"),
        ("/val", "/val"),
    ],
)
def test_the_split_stands_before_a_name_or_behind_a_slash(given: str, ours: str) -> None:
    assert recorded_name(given) == ours
