"""Reports in printed lines are recognized; other lines are left alone."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from monitoring.bridge.printed_line import check_patterns, named_numbers, printed_values, values_of_test
from monitoring.bridge.source import Reported
from monitoring.bridge.sources.output import OutputSource
from monitoring.errors import UserError

from .conftest import Bridged
from .test_sources import records

COUNT_ON = [
    ("step 20 loss 0.1670", {"step": "20", "loss": "0.1670"}),
    ("[2026-11-26 12:00:00] INFO:train:step=3 loss=nan", {"step": "3", "loss": "nan"}),
    ("epoch 0.25 step 100 loss 3,000.5", {"epoch": "0.25", "step": "100", "loss": "3,000.5"}),
    ("val loss 1.5 at step 7", {"val/loss": "1.5", "step": "7"}),
    ("epoch 3 | loss 0.5 | acc 0.9", {"epoch": "3", "loss": "0.5", "acc": "0.9", "step": "3"}),
    ("step 3 wer 0.41 cer 0.2", {"step": "3", "wer": "0.41", "cer": "0.2"}),
    ("epoch 2: val mIoU 0.71, RMSE=0.3", {"epoch": "2", "val/miou": "0.71", "rmse": "0.3", "step": "2"}),
    # Keras, fit(verbose=2)
    (
        "Epoch 2/5 - loss: 0.31 - accuracy: 0.91 - val_loss: 0.4",
        {"epoch": "2", "loss": "0.31", "accuracy": "0.91", "val_loss": "0.4", "step": "2"},
    ),
    # llm.c, train_gpt2.py
    (
        "step    1/74 | train loss 4.367631 | norm 15.6 | lr 1.2e-05 | (80.50 ms | 1234 tok/s)",
        {"step": "1", "train/loss": "4.367631", "norm": "15.6", "lr": "1.2e-05"},
    ),
    # nanochat, scripts/base_train.py
    (
        "step 00012/00100 (12.00%) | loss: 5.5 | lrm: 1.00 | dt: 3.4ms | tok/sec: 1,234 | mfu: 3.20",
        {"step": "00012", "loss": "5.5", "lrm": "1.00", "dt": "3.4", "tok/sec": "1,234", "mfu": "3.20"},
    ),
]
INSIDE_AN_EPOCH = [
    ("Epoch [3/10], Step [100/600], Loss: 0.2345", {"epoch": "3", "loss": "0.2345"}),
    ("epoch 3 batch 20 loss 0.1", {"epoch": "3", "batch": "20", "loss": "0.1"}),
    ("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.285", {"epoch": "1", "loss": "2.285"}),
    # github.com/pytorch/examples, imagenet/main.py: the value, and its mean in brackets
    (
        "Epoch: [0][  10/5005]\tData 0.1 (0.2)\tLoss 6.9e+00 (6.9e+00)\tAcc@1   0.39 (  0.31)",
        {"epoch": "0", "loss": "6.9e+00", "acc@1": "0.39"},
    ),
]
NO_REPORT = [
    "step 3 took 5 s",
    "step 3 after 5 s, water 7",
    "loss: 0.5",
    "Epoch 4 done, accuracy: 9812/10000",
    "Epoch 1:  10%|#         | 3/30 [00:01<00:09,  2.50it/s, loss=0.5]",
    "{'loss': 0.5, 'epoch': 0.1}",
    "step 5: the best loss so far = 0.5, at 12:30",
]


@pytest.mark.parametrize(("line", "numbers"), COUNT_ON + INSIDE_AN_EPOCH)
def test_numbers_of_a_line(line: str, numbers: dict[str, str]) -> None:
    assert named_numbers(line) == numbers


@pytest.mark.parametrize("line", NO_REPORT)
def test_other_lines_are_no_report(line: str) -> None:
    assert named_numbers(line) == {}


# What stands where a number is expected, and the number that it is.
NUMBERS = {
    0.5: ("0.5", ".5", "5e-1", "+0.5", "0.5,", "0.5)", "0.5]", "0.5|", "0.5;", "0.5."),
    12: ("12", "12.", "12%", "12 %", "1.2e+01", "12,", "12.0/s"),
    1234.5: ("1234.5", "1,234.5", "1,234.5,", "1.2345e3"),
    math.inf: ("inf", "+Infinity", "INF"),
}
SPELLINGS = [(text, {"loss": number}) for number, texts in NUMBERS.items() for text in texts]
WITH_UNITS = [("0.5s", 0.5), ("0.50 sec", 0.5), ("12tok/s", 12), ("12ms", 12), ("12GiB", 12), ("1.5x", 1.5)]
NO_NUMBERS = (
    *("0x10", "0b1", "0xff", "1e", "1e+", "1.5e-x", "0.5abc", "0.5f", "1L", "3rd", "10k", "1.2M", "3B"),
    *("1_000", "1920x1080", "2m30s", "info", "nano", "infinite", "0,5", "0,532", "12,34", "1.234,5"),
    *("0.5,0.6", "1,2345", "1.2.3", "12:30", "2026-11-29", "0.5-0.6", "0.5.ckpt", "-", "."),
)


@pytest.mark.parametrize(("text", "found"), SPELLINGS + [(text, {}) for text in NO_NUMBERS])
def test_what_runs_on_into_something_else_is_no_number(text: str, found: dict[str, float]) -> None:
    """In lines with names, in nanoGPT's (its `loss` is the validation's here), and in torchtitan's."""
    train = {"estimated_train_loss": 0.25} if found else {"train/loss": 0.25}
    lines = {
        f"step 3 loss {text} wer: 0.25": {"step": 3, **found, "wer": 0.25},
        f"step 3: train loss 0.25, val loss {text}": {
            "step": 3,
            **train,
            **{f"val_{name}": value for name, value in found.items()},
        },
        f"step:  3  loss:  {text}": {"step": 3, **found} if found else {},
    }
    assert {line: printed_values(line)[0] for line in lines} == lines


@pytest.mark.parametrize(("text", "number"), WITH_UNITS)
def test_unit_may_stand_right_behind_a_number(text: str, number: float) -> None:
    line = f"step 3 | loss 0.25 | took: {text}"
    assert printed_values(line)[0] == {"step": 3, "loss": 0.25, "took": number}


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), ("0.5,", 0.5), ("1,234", 1234), ("12%;", 12), ("9" * 5000, math.inf)]
    + [(text, text) for text in ("0x10", "0,5", "10k", "1.2.3", "warm-up")],
)
def test_value_that_a_pattern_of_the_users_takes(text: str, value: object) -> None:
    assert printed_values(f"1: my={text} ", [r"my=(?P<my>\S+)"]) == ({"my": value}, False)


def test_dict_waits_for_the_bar_behind_it_however_long_the_one_before_it_was_drawn(tmp_path: Path) -> None:
    bars = "".join(f"\r 12%|#  | {step}/16 [00:00<00:00, 74.14it/s]" for step in range(1000))
    path, log = tmp_path / "output.log", f"{bars}\r    \r{{'loss': '2', 'epoch': '0.1'}}\n"
    end, below, step = (
        len(log),
        "\n\r  0%|   | 0/4 [00:00<?, ?it/s]\x1b[A",
        Reported({"loss": 2, "epoch": 0.1}, len(log), 8),
    )
    source, found = OutputSource(path), []
    for printed in (
        "",
        below,
        f"{below}\r 50%|## | 8/16 [00:00<00:00, 9.1it/s]",
        "\r 50%|## | 8/16 [00:01<",
        "other\n",
    ):
        path.write_text(log + printed)
        found.append(list(source.read(0)))
    source.is_whole = True
    path.write_text(log)
    found.append(list(source.read(0)))
    counted = Reported({"loss": 2, "epoch": 0.1}, end)
    assert found == [[], [], [step], [step], [counted], [counted]]


def test_output_of_the_mnist_example_and_of_a_line_with_names(tmp_path: Path) -> None:
    """The example of github.com/pytorch/examples, mnist/main.py, as it prints."""
    lines = [
        "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.285",
        "Test set: Average loss: 0.0567, Accuracy: 9812/10000 (98%)",
        "step 20 loss 0.5",
    ]
    (tmp_path / "output.log").write_text("".join(f"{line}\n" for line in lines))
    ends = [sum(len(line) + 1 for line in lines[:n]) for n in (1, 2, 3)]
    assert list(OutputSource(tmp_path / "output.log").read(0)) == [
        Reported({"epoch": 1, "loss": 2.285}, ends[0]),
        Reported({"test/loss": 0.0567, "test/accuracy_percent": 98}, ends[1]),
        Reported({"loss": 0.5}, ends[2], 20),
    ]


def test_line_at_the_end_of_an_epoch_has_the_step_that_was_counted_by_then(
    tmp_path: Path, bridged: Bridged
) -> None:
    lines = [f"Epoch [{epoch}/2], Step [{step}/2], Loss: {4 - epoch}" for epoch in (1, 2) for step in (1, 2)]
    lines[2:2] = ["Epoch 1: val loss 0.5"]
    lines += ["Epoch 2: val loss 0.25, train acc 0.9"]
    bridged(tmp_path / "run", sys.executable, "-c", f"print({chr(10).join(lines)!r})")
    steps = [(one["global_step"], one.get("train_loss")) for one in records(tmp_path / "run", "step")]
    evals = [(one["global_step"], one["val_loss"]) for one in records(tmp_path / "run", "eval")]
    assert (steps, evals) == ([(1, 3), (2, 3), (3, 2), (4, 2), (5, None)], [(2, 0.5), (5, 0.25)])


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("test loss 0.4", {"test/loss": 0.4}),
        ("Final test loss: 0.4", {"test/loss": 0.4}),
        ("Test Loss: 0.12 | Test Acc: 92.1%", {"test/loss": 0.12, "test/acc": 92.1}),
        ("Test set: accuracy 0.9, f1=0.8", {"test/accuracy": 0.9, "test/f1": 0.8}),
        ("test acc@5: 0.9", {"test/acc@5": 0.9}),
        ("test acc@15", {}),
        ("best test loss 0.35", {}),
        ("test loss improved from 0.5 to 0.4", {}),
        ("test loss 0.4 (before 0.5)", {}),
        ("test accuracy: 9812/10000", {}),
        ("latest loss 0.3", {}),
        (f"test loss 1{' ' * 9000}x", {}),  # in which an expression that goes back would go on for hours
    ],
)
def test_line_that_says_what_came_out_on_the_test_set_and_nothing_else(
    line: str, values: dict[str, float]
) -> None:
    assert values_of_test(line) == values


def test_pattern_that_never_ends_is_used_no_more(tmp_path: Path) -> None:
    (tmp_path / "output.log").write_text(f"loss 0.5 {'a' * 60}!\nmy 3\nstep 4 loss 2\n")
    endless = r"(?P<x>(a+)+)$"
    source = OutputSource(tmp_path / "output.log", [endless, r"my (?P<my>\d+)"])
    assert [one.values for one in source.read(0)] == [{"my": 3}, {"loss": 2}]
    assert source.left_out == f"has a line on which --pattern {endless} took 1 s: it is used no more"


@pytest.mark.parametrize("pattern", ["(?P<a>x{99999999999})", "(?P<a>" + "(" * 5000 + ")" * 5001])
def test_pattern_that_is_too_large_is_refused(pattern: str) -> None:
    with pytest.raises(UserError, match="is no regular expression"):
        check_patterns([pattern])
