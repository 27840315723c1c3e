"""`python lenet5/train.py --pruning …` as a process: what it records, saves and refuses."""

from __future__ import annotations

from collections.abc import Callable

from kharness.training.checkpoint import checkpoint_files, load

from .conftest import Trained

# conv1 6x1x5x5, conv2 16x6x5x5, then 400x120, 120x84 and 84x10.
NUM_WEIGHTS = 150 + 2400 + 48000 + 10080 + 840


def test_sparsity_is_recorded_as_it_is_in_the_weights(train_few: Callable[..., Trained]) -> None:
    flags = ("--pruning-sparsity", "0.9", "--pruning-every", "4", "--pruning-start-fraction", "0")
    done = train_few("--max-steps", "12", "--batch-size", "10", "--pruning", "magnitude", *flags)
    assert (done.code, done.err) == (0, "")
    (start,), (end,) = done.records("start"), done.records("end")
    assert start["pruning"] == {
        "name": "magnitude",
        "sparsity": 0.9,
        "start_fraction": 0.0,
        "end_fraction": 0.75,
        "every": 4,
        "whole_model": True,
        "sparsity_schedule": "cubic",
    }
    # Of the 12 steps, 9 until the sparsity is reached: after 4, 8 and 9 of them, rounded to whole weights.
    levels = [round(0.9 * (1 - (1 - step / 9) ** 3) * NUM_WEIGHTS) / NUM_WEIGHTS for step in (0, 4, 8, 9)]
    assert levels[3] == 0.9
    steps = [step["sparsity"] for step in done.records("step")]
    assert steps == [*[0.0] * 3, *[levels[1]] * 4, levels[2], *[levels[3]] * 4]
    assert [epoch["sparsity"] for epoch in done.records("epoch")][-1] == end["sparsity"] == 0.9
    (epoch_line,) = [line for line in done.out.splitlines() if line.startswith("epoch ")]
    assert epoch_line.split("  ")[-2] == "sparsity 0.9000"

    state = load(checkpoint_files(done.directory / "checkpoints")[0])
    weights = [value for value in state["model"].values() if value.ndim > 1]
    assert sum(int((weight == 0).sum()) for weight in weights) == round(0.9 * NUM_WEIGHTS)
    masks = state["pruning"]["pruned"].values()
    assert all(bool((weight[mask] == 0).all()) for weight, mask in zip(weights, masks, strict=True))


def test_taylor_without_momentum_is_refused_before_training(train: Callable[..., Trained]) -> None:
    flags = ("--optimizer-sgd-momentum", "0", "--no-optimizer-sgd-nesterov")
    done = train("--max-steps", "2", "--pruning", "taylor", *flags)
    assert done.code == 2
    assert done.err == (
        "error: PRUNING=taylor needs OPTIMIZER_SGD_MOMENTUM above 0\n"
        "hint: without momentum SGD keeps no mean gradient; PRUNING=magnitude needs none\n"
    )
    assert not done.results.exists()
