"""The callback in Hugging Face's own Trainer: a tiny model of random weights on the CPU, offline."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.monitoring.conftest import RunProgram

PROGRAM = """
import inspect, json, sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from monitoring.verbose_logging import VerboseLoggingCallback


class Sequences(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        tokens = torch.arange(8) + index
        return {"input_ids": tokens, "labels": tokens}


def trained(**options):
    torch.manual_seed(0)
    size = {"n_layer": 1, "n_head": 1, "n_embd": 8, "vocab_size": 32, "n_positions": 8}
    model = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=0, eos_token_id=0))
    arguments = TrainingArguments(
        output_dir="out", max_steps=4, per_device_train_batch_size=2, gradient_accumulation_steps=2,
        logging_steps=2, eval_strategy="steps", eval_steps=4, save_steps=4, report_to=[], disable_tqdm=True,
        use_cpu=True, dataloader_pin_memory=False,
    )
    Trainer(model, arguments, train_dataset=Sequences(), eval_dataset=Sequences(), **options).train()
    return [float(weight.double().sum()) for weight in model.parameters()]


callback = VerboseLoggingCallback(verbosity_level="ultra")
with_it = trained(callbacks=[callback])
callback.close()
hooks = {name for name, _ in inspect.getmembers(TrainerCallback) if name.startswith("on_")}
found = {
    "is_callback": issubclass(VerboseLoggingCallback, TrainerCallback),
    "not_ours": [
        name for name in hooks if getattr(VerboseLoggingCallback, name).__module__.startswith("transformers")
    ],
    "with_it": with_it,
    "without": trained(),
}
open("found.json", "w").write(json.dumps(found))
"""


def test_the_trainer_calls_it_and_trains_the_same(results: Path, run_program: RunProgram) -> None:
    run_program(PROGRAM)
    told = json.loads((results / "found.json").read_text())
    assert (told["is_callback"], told["not_ours"]) == (True, [])
    assert told["with_it"] == told["without"]
    found = [json.loads(line) for line in (results / "verbose_training_logs.jsonl").read_text().splitlines()]
    counts = Counter(entry["type"] for entry in found)
    assert counts == {
        **dict.fromkeys(("system_initialization", "training_initialization", "training_start"), 1),
        **dict.fromkeys(("epoch_begin", "epoch_complete"), 2),
        **dict.fromkeys(("step_begin", "training_step_complete", "batch_complete"), 4),
        **dict.fromkeys(("evaluation_start", "prediction_step", "evaluation_complete"), 1),
        "training_metrics_update": 4,  # of steps 2 and 4, of the evaluation and of all
        **dict.fromkeys(("model_checkpoint_save", "training_complete"), 1),
    }
    of = {entry["type"]: entry for entry in found}
    assert of["training_initialization"]["model"]["name"] == "GPT2LMHeadModel"
    assert of["training_initialization"]["model"]["config"]["n_embd"] == 8
    assert of["training_initialization"]["arguments"]["lr_scheduler_type"] == "linear"
    assert of["training_start"]["dataset"]["sample"]["fields"]["input_ids"]["shape"] == [8]
    assert of["training_start"]["batch"]["samples_per_step"] == 4
    steps = [entry for entry in found if entry["type"] == "training_step_complete"]
    assert [(entry["step"], entry["epoch"]) for entry in steps] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    assert [entry["metrics"].keys() for entry in steps] == [
        *(set(), {"loss", "grad_norm", "learning_rate", "epoch"}) * 2
    ]
    assert steps[3]["timing"]["eta_minutes"] == 0.0
    assert of["model_checkpoint_save"]["checkpoint_path"] == "out/checkpoint-4"
    assert of["training_complete"]["final_metrics"].keys() >= {"loss", "eval_loss", "train_runtime"}
    assert not (results / "verbose_logging_errors.log").exists()


def test_importing_it_imports_no_framework(bare_python: Any) -> None:
    program = (
        "import sys, monitoring.verbose_logging.hooks; print({'torch', 'transformers'} & set(sys.modules))"
    )
    assert bare_python(program) == "set()\n"


def test_both_documented_names_are_the_class(without_transformers: None) -> None:
    import monitoring.verbose_logging
    import verbose_logging

    assert verbose_logging.VerboseLoggingCallback is monitoring.verbose_logging.VerboseLoggingCallback
    with pytest.raises(AttributeError):
        monitoring.verbose_logging.Nothing  # noqa: B018
