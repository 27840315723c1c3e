"""Callbacks of the Trainer: what it hides, resumes, adapters, and how a training ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monitoring import read_records
from tests.monitoring.conftest import RunProgram

BEFORE = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from monitoring.callbacks import *

tokens = torch.randint(0, 100, (64, 16), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": row} for row in tokens]
config = GPT2Config(vocab_size=100, n_positions=16, n_embd=32, n_layer=1, n_head=2)


def trainer(model=None, steps=4, callbacks=(), **arguments):
    torch.manual_seed(0)
    model = model or GPT2LMHeadModel(config)
    more = {"logging_steps": 1, "save_strategy": "no", **arguments}
    given = TrainingArguments(output_dir="out", max_steps=steps, report_to=[], use_cpu=True, **more)
    return Trainer(model=model, args=given, train_dataset=data, callbacks=list(callbacks))
"""


def journal(results: Path, run: str = "run") -> list[dict[str, Any]]:
    return [dict(record) for record, _ in read_records(results / run / "metrics.jsonl")]


def test_a_nan_that_the_trainer_hides_is_recorded(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
class Spoil(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **_):
        if state.global_step == 2:
            model.transformer.wte.weight.data[0] = float("nan")

made = trainer(callbacks=[Spoil(), RunCallback("run", agent=False)])
made.train()
assert made.args.logging_nan_inf_filter
"""
    )
    steps = [record for record in journal(results) if record["event"] == "step"]
    assert [record["nan_inf_detected"] for record in steps] == [False, False, True, True]
    assert [record["train_loss"] for record in steps][2:] == [None, None]


def test_the_norm_is_measured_where_the_trainer_does_not_clip(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
for name, clip in (("clipped", 1e9), ("unclipped", 0)):
    callback = RunCallback(name, agent=False)
    trainer(callbacks=[callback], logging_steps=2, max_grad_norm=clip).train()
    callback.close()
"""
    )
    norms = {
        run: [record["grad_norm"] for record in journal(results, run) if record["event"] == "step"]
        for run in ("clipped", "unclipped")
    }
    assert len(norms["clipped"]) == 2
    assert norms["clipped"] == norms["unclipped"]


def test_a_training_that_resumes_is_the_next_attempt(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
kept = {"save_strategy": "steps", "save_steps": 2}
first = RunCallback("run", agent=False)
trainer(steps=3, callbacks=[first], **kept).train()
first.close()
import shutil
shutil.rmtree("out/checkpoint-3", ignore_errors=True)
trainer(callbacks=[RunCallback("run", agent=False)], **kept).train(resume_from_checkpoint="out/checkpoint-2")
"""
    )
    found = journal(results)
    starts = [record for record in found if record["event"] == "start"]
    assert [record["attempt"] for record in starts] == [1, 2]
    assert starts[1]["resumed_from"] == {"checkpoint": "checkpoint-2", "global_step": 2}
    third = next(record for record in found if record["event"] == "step" and record["global_step"] == 3)
    last = starts[1]["seq"] - 1
    assert starts[1]["supersedes"] == {"first_seq": third["seq"], "last_seq": last}
    again = [
        record["global_step"] for record in found if record["attempt"] == 2 and record["event"] == "step"
    ]
    assert again == [3, 4]


def test_a_training_that_raises_has_failed(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
class Raise(TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 2:
            raise RuntimeError("the disk of somebody else")

trainer(callbacks=[RunCallback("run", agent=False), Raise()]).train()
""",
        code=1,
    )
    end = journal(results)[-1]
    found = {key: end[key] for key in ("event", "status", "error", "cause")}
    error = "RuntimeError: the disk of somebody else"
    assert found == {"event": "end", "status": "failed", "error": error, "cause": "error"}


def test_an_adapter_is_described_flat(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
from peft import LoraConfig, get_peft_model

lora = LoraConfig(
    r=4, lora_alpha=16, target_modules=["c_attn", "c_proj"], task_type="CAUSAL_LM", fan_in_fan_out=True
)
adapted = get_peft_model(GPT2LMHeadModel(config), lora)
trainer(adapted, steps=1, callbacks=[RunCallback("run", agent=False)]).train()
"""
    )
    start = journal(results)[0]
    names = ("lora_rank", "lora_alpha", "lora_dropout", "target_modules")
    assert [start[name] for name in names] == [4, 16, 0.0, ["c_attn", "c_proj"]]
    assert start["model"]["architecture"] == "GPT2LMHeadModel"
    # c_attn 32 -> 96, attention's c_proj 32 -> 32, the MLP's 128 -> 32, rank 4
    assert start["model"]["trainable_parameters"] == 4 * ((32 + 96) + (32 + 32) + (128 + 32))


def test_phases_are_timed_and_reach_the_run(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
telemetry = TelemetryTrainerCallback("run", include_timer_metrics=True, write_every=0)
callbacks = [telemetry, RunCallback("run", agent=False)]
trainer(steps=3, callbacks=callbacks, gradient_accumulation_steps=2, per_device_train_batch_size=4).train()
"""
    )
    written = json.loads((results / "run/telemetry/telemetry_callback_rank0000.json").read_text())
    counts = {phase: written["timers"][phase]["count"] for phase in ("microsteps", "steps", "epochs")}
    assert counts == {"microsteps": 6, "steps": 3, "epochs": 1}
    steps = [record for record in journal(results) if record["event"] == "step"]
    assert all(record["rank000_steps_mean"] >= record["rank000_microsteps_mean"] > 0 for record in steps)


def test_phases_of_a_second_training_are_in_its_own_run(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
telemetry = TelemetryTrainerCallback("run", write_every=0)
made = trainer(callbacks=[telemetry, RunCallback("run", agent=False)])
for steps in (2, 3):
    made.args.max_steps = steps
    made.train()
"""
    )
    for run, steps in (("run", 2), ("run-2", 3)):
        text = (results / run / "telemetry/telemetry_callback_rank0000.json").read_text()
        assert json.loads(text)["timers"]["steps"]["count"] == steps


def test_gpus_are_watched_beside_the_trainer(results: Path, run_program: RunProgram) -> None:
    run_program(
        BEFORE
        + """
from monitoring.gpu_monitor import GPUMonitor

monitor = GPUMonitor("all", log_dir="gpu_logs", quiet=True, root="no-gpu-here")
trainer(steps=6, callbacks=[GPUMonitoringCallback(monitor, log_interval=3)]).train()
assert not monitor.is_running
"""
    )
    (log,) = (results / "gpu_logs").glob("training_metrics_*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6]
    assert all(line["loss"] > 0 and line["step_duration_seconds"] > 0 for line in lines)
    assert [line["learning_rate"] for line in lines] == [5e-5 * 4 / 6, 5e-5 * 1 / 6]
