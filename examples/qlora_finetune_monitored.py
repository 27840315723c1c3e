"""Fine-tune a language model by (Q)LoRA, with its run recorded and its GPU watched.

    python examples/qlora_finetune_monitored.py --data my.txt --output-dir results/first

It needs no network with `--model-config tiny`, a random model of a few thousand parameters whose tokens are
bytes. On a GPU with bitsandbytes the base model is loaded in 4 bits (QLoRA: Dettmers et al. 2023,
arXiv:2305.14314), otherwise as it is (LoRA: Hu et al. 2021, arXiv:2106.09685), and it says which.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from monitoring import MonitoringError, read_records
from monitoring.errors import report_error
from monitoring.gpu_monitor import GPUMonitor

# Name -> where its weights are on the Hugging Face hub; anything else is a name there, or a folder.
MODELS = {"gemma-3n": "google/gemma-3n-E2B-it"}
BLOCK = 64
TEXTS = (".jsonl", ".md", ".txt")


def main(argv: Sequence[str]) -> int:
    """Train, and print where the run is; 2 for what the user can fix."""
    flags = parser().parse_args(argv)
    from monitoring.callbacks import GPUMonitoringCallback, RunCallback  # it imports transformers: seconds

    try:
        text = read_text(flags.data)
        model, encode = tiny() if flags.model_config == "tiny" else loaded(flags.model_config)
    except MonitoringError as error:
        return report_error(error)
    monitor = GPUMonitor(
        flags.gpu_index,
        log_dir=flags.monitoring_log_dir,
        prometheus_port=flags.prometheus_port if flags.enable_prometheus else None,
        name=flags.output_dir.name,
    )
    callbacks = [RunCallback(flags.output_dir), GPUMonitoringCallback(monitor, log_interval=10)]
    train(adapted(model), blocks(encode(text)), flags, callbacks)
    print("\n".join(summary(flags.output_dir, monitor)))
    print(f"run: {flags.output_dir}; GPU and training metrics: {flags.monitoring_log_dir}")
    return 0


def summary(directory: Path, monitor: GPUMonitor) -> list[str]:
    """Lines on what the journal and the GPU monitor measured; what was not measured has no line."""
    steps = [one for one, _ in read_records(directory / "metrics.jsonl") if one["event"] == "step"]
    lines = [f"summary of {directory}", f"  steps: {len(steps)}"]
    for name in ("train_loss", "grad_norm", "samples_per_sec", "tokens_per_second", "sec_per_step"):
        if values := [float(found) for one in steps if isinstance(found := one.get(name), int | float)]:
            mean = sum(values) / len(values)
            lines.append(f"  {name}: first {values[0]:.4g}, last {values[-1]:.4g}, mean {mean:.4g}")
    for index, metrics in monitor.statistics().items():
        for name, of in metrics.items():
            lines.append(f"  GPU {index} {name}: mean {of.mean:.4g}, max {of.max:.4g}")
    return lines


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    found.add_argument(
        "--model-config", default="tiny", help="tiny, gemma-3n, a name on the hub, or a folder"
    )
    found.add_argument("--data", type=Path, required=True, help="a text file, or a folder of them")
    found.add_argument("--output-dir", type=Path, default=Path("results/qlora"))
    found.add_argument("--gpu-index", type=int, default=0)
    found.add_argument("--monitoring-log-dir", type=Path, default=Path("gpu_logs"))
    found.add_argument("--enable-prometheus", action="store_true", help="answer scrapes of GPU metrics")
    found.add_argument("--prometheus-port", type=int, default=9090)
    found.add_argument("--max-steps", type=int, default=20)
    return found


def read_text(path: Path) -> str:
    """All text of a file or a folder. Errors: MonitoringError if there is too little."""
    files = sorted(each for each in path.rglob("*") if each.suffix in TEXTS) if path.is_dir() else [path]
    try:
        text = "\n".join(each.read_text(errors="replace") for each in files)
    except OSError as error:
        raise MonitoringError(
            f"{path}: {error.strerror}", hint="--data names a text file, or a folder"
        ) from error
    if len(text) <= BLOCK:
        kinds = ", ".join(TEXTS)
        raise MonitoringError(
            f"{path} holds {len(text)} characters", hint=f"name a text file, or a folder ({kinds})"
        )
    return text


def tiny() -> tuple[Any, Any]:
    """A random GPT-2 whose tokens are bytes, and what encodes text for it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=256, n_positions=BLOCK, n_embd=32, n_layer=1, n_head=2)
    return GPT2LMHeadModel(config), lambda text: list(text.encode())


def loaded(name: str) -> tuple[Any, Any]:
    """A pretrained model, in 4 bits where that works, and what encodes text for it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig

    where = MODELS.get(name, name)
    quantized = torch.cuda.is_available() and importlib.util.find_spec("bitsandbytes") is not None
    how = "4 bits (QLoRA)" if quantized else "not quantized (LoRA); QLoRA takes a GPU and bitsandbytes"
    print(f"{where}: {how}")
    config = {"quantization_config": BitsAndBytesConfig(load_in_4bit=True)} if quantized else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(where)
        model = AutoModelForCausalLM.from_pretrained(where, **config)
    except OSError as error:
        raise MonitoringError(
            f"{where} is not on this machine, and the hub has not given it",
            hint="--model-config takes a folder with the weights, or tiny",
        ) from error
    return model, lambda text: tokenizer(text)["input_ids"]


def adapted(model: Any) -> Any:
    """The model with low-rank adapters at all of its linear layers; nothing else is trained."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if getattr(model, "is_loaded_in_4bit", False):
        model = prepare_model_for_kbit_training(model)
    return get_peft_model(
        model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    )


def blocks(tokens: Sequence[int]) -> list[dict[str, list[int]]]:
    """Blocks of equal length; the tokens that do not fill one are dropped."""
    starts = range(0, len(tokens) - BLOCK + 1, BLOCK)
    return [
        {"input_ids": list(part), "labels": list(part)} for i in starts if (part := tokens[i : i + BLOCK])
    ]


def train(
    model: Any, data: list[dict[str, list[int]]], flags: argparse.Namespace, callbacks: list[Any]
) -> None:
    """Train by the Trainer; checkpoints are in the run directory."""
    from transformers import Trainer, TrainingArguments

    arguments = TrainingArguments(
        output_dir=str(flags.output_dir / "checkpoints"),
        max_steps=flags.max_steps,
        learning_rate=2e-4,
        logging_steps=1,
        report_to=[],
    )
    Trainer(model=model, args=arguments, train_dataset=data, callbacks=callbacks).train()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
