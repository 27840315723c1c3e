"""Turns the metrics that a framework logs, under names of the user's own, into records with our names."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Protocol


class Log(Protocol):
    """The two calls of a Run that take measurements."""

    def log_step(self, global_step: int, /, *, at: object = None, **metrics: object) -> None: ...

    def log_eval(self, global_step: int, /, *, split: str, at: object = None, **metrics: object) -> None: ...


# Names that frameworks and their examples use -> ours; every other name stays.
STEP_NAMES = {
    "loss": "train_loss",
    "train/loss": "train_loss",
    "loss/train": "train_loss",
    "Loss/train": "train_loss",
    "train_loss_step": "train_loss",
    "learning_rate": "lr",
    "gradient_norm": "grad_norm",
}
# Names that are kept taken apart: a program has a handful.
MOST_NAMES = 4096
# Beginning of a measurement's name, or its end after a slash -> the split that it was measured on.
SPLITS = {"val": "val", "valid": "val", "validation": "val", "eval": "val", "test": "test"}
# Metrics that we know, also where a script writes them with a capital, as PyTorch's tutorials do.
KNOWN = frozenset({"loss", "accuracy", "perplexity"})
# Names that frameworks add to all that they log; alone they make no record of a step.
COUNTS = frozenset({"epoch", "num_input_tokens_seen", "logged_step"})


def has_step(metrics: Mapping[str, Any]) -> bool:
    """Whether there are metrics of a training step among those that are logged."""
    names = map(str, metrics)
    return any(name not in COUNTS and measured(name)[0] is None for name in names)


def record(run: Log, step: int, metrics: Mapping[str, Any], **measured_here: object) -> None:
    """Write one record of the measurements on each split, and one of the rest with what was measured here.

    Nothing is lost: where two names become one, the second stays as it is, and what the user logs goes
    before what is measured here.
    """
    of_split: dict[str, dict[str, object]] = {}
    of_step: dict[str, object] = {}
    for given, value in metrics.items():
        name = str(given)
        split, ours = measured(name)[0], recorded_name(name)
        if split is None:
            of_step[name if ours in metrics or ours in of_step else ours] = value
        else:
            found = of_split.setdefault(split, {})
            found[name if (ours in metrics and ours != name) or ours in found else ours] = value
    if of_step.keys() - COUNTS or not of_split:
        run.log_step(step, **{**measured_here, **of_step})
    elif of_step:
        first = next(iter(of_split))
        of_split[first] = {**of_step, **of_split[first]}
    for split, found in of_split.items():
        _log_eval(run, step, split, found)


def record_evaluation(run: Log, step: int, metrics: Mapping[str, Any], prefix: str) -> None:
    """Write one record of an evaluation whose names begin with a prefix, and of what was logged with them.

    `eval_loss` is recorded as `val_loss`; a prefix of the user's own is a split of its own.
    """
    kind, _, rest = prefix.partition("_")
    split = SPLITS.get(kind, prefix)
    ours = f"{split}_{rest}_" if rest and kind in SPLITS else f"{split}_"
    found: dict[str, object] = {}
    for given, value in metrics.items():
        name = str(given)
        new = ours + name.removeprefix(f"{prefix}_") if name.startswith(f"{prefix}_") else name
        found[name if (new in metrics and new != name) or new in found else new] = value
    _log_eval(run, step, split, found)


def _log_eval(run: Log, step: int, split: str, found: Mapping[str, object]) -> None:
    run.log_eval(
        step, split=split, **{f"{name}_" if name == "split" else name: found[name] for name in found}
    )


@functools.lru_cache(maxsize=MOST_NAMES)
def measured(name: str) -> tuple[str | None, str]:
    """The split that a metric was measured on, and its name without that.

    `valid/loss`, `val_loss` and `Loss/val` are ("val", "loss"); `max_val` is a value.
    """
    for mark in ("/", "_"):
        prefix, found, rest = name.partition(mark)
        if found and rest and prefix in SPLITS:
            return SPLITS[prefix], rest
    short, _, last = name.rpartition("/")
    if short and last in SPLITS:
        return SPLITS[last], short.lower() if short.lower() in KNOWN else short
    return None, name


def recorded_name(name: str) -> str:
    """Return the name under which a metric is recorded that a framework or script calls so: `loss` is
    `train_loss`, `valid/acc` and `acc/valid` are `val_acc`.
    """
    split, short = measured(name)
    return STEP_NAMES.get(name, name) if split is None else f"{split}_{short}"
