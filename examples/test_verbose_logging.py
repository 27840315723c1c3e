"""Writes a small verbose log at each level into the current folder, and checks it.

    python test_verbose_logging.py

It needs neither a GPU nor a network: the training is a parabola. docs/verbose-logging.md says more.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

from verbose_logging import VerboseLoggingCallback

REQUIRED_FIELDS = ("timestamp", "type", "level", "message")
NUM_STEPS = 10


def train(callback: VerboseLoggingCallback) -> None:
    """Ten steps down a parabola in two epochs, which call what a trainer calls."""
    arguments = SimpleNamespace(
        per_device_train_batch_size=4,
        train_batch_size=4,
        gradient_accumulation_steps=1,
        world_size=1,
        output_dir="results",
    )
    state = SimpleNamespace(global_step=0, epoch=0.0, max_steps=NUM_STEPS, num_train_epochs=2)
    loader = SimpleNamespace(dataset=[{"x": [0.5, 1.5], "label": number} for number in range(20)])
    weight = 1.0
    callback.on_init_end(arguments, state, None)
    callback.on_train_begin(arguments, state, None, train_dataloader=loader)
    while state.global_step < NUM_STEPS:
        if state.global_step % 5 == 0:
            callback.on_epoch_begin(arguments, state, None)
        callback.on_step_begin(arguments, state, None)
        weight -= 0.1 * 2 * weight
        state.global_step += 1
        state.epoch = state.global_step / 5
        callback.on_step_end(arguments, state, None)
        callback.on_log(arguments, state, None, logs={"loss": weight**2, "learning_rate": 0.1})
        if state.global_step % 5 == 0:
            callback.on_prediction_step(arguments, state, None)
            callback.on_evaluate(arguments, state, None, metrics={"eval_loss": weight**2})
            callback.on_save(arguments, state, None)
            callback.on_epoch_end(arguments, state, None)
    callback.on_train_end(arguments, state, None)


def main() -> None:
    for level in ("low", "medium", "high", "ultra"):
        log_file = f"test_verbose_logs_{level}.jsonl"
        callback = VerboseLoggingCallback(verbosity_level=level, log_file=log_file)
        train(callback)
        callback.close()
        with open(log_file) as file:
            entries = [json.loads(line) for line in file]
        assert all(field in entry for entry in entries for field in REQUIRED_FIELDS)
        assert entries[-1]["type"] == "training_complete"
        print(f"✅ {log_file}: {len(entries)} entries")


if __name__ == "__main__":
    main()
