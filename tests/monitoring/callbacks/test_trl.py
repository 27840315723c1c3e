"""The script of trl's package for SFTTrainer, with our callback added and nothing else changed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from monitoring import read_records
from tests.monitoring.conftest import RunProgram
from tests.warm_python import WarmPython

from .conftest import launch

LAST_ARGUMENT = "        peft_config=get_peft_config(model_args),\n"

# A GPT-2 of six words, as `from_pretrained` reads it.
MODEL = """
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

numbers = {word: number for number, word in enumerate(["<pad>", "<end>", "<?>", *"abc"])}
words = Tokenizer(models.WordLevel(numbers, "<?>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
special = {"pad_token": "<pad>", "eos_token": "<end>", "unk_token": "<?>"}
PreTrainedTokenizerFast(tokenizer_object=words, **special).save_pretrained("tiny")
sizes = {"vocab_size": 6, "n_positions": 16, "n_embd": 8, "n_layer": 1, "n_head": 1}
GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=1, eos_token_id=1)).save_pretrained("tiny")
"""


@pytest.fixture
def script(results: Path) -> Path:
    found = importlib.util.find_spec("trl")
    assert found is not None
    assert found.origin is not None
    text = (Path(found.origin).parent / "scripts/sft.py").read_text()
    assert text.count(LAST_ARGUMENT) == 1
    added = f'{LAST_ARGUMENT}        callbacks=[RunCallback("results/sft")],\n'
    path = results / "sft.py"
    path.write_text("from monitoring.callbacks import RunCallback\n" + text.replace(LAST_ARGUMENT, added))
    return path


@pytest.mark.parametrize("processes", [1, 2])
def test_sft_trainer_is_recorded(
    script: Path, results: Path, run_program: RunProgram, warm_frameworks: WarmPython, processes: int
) -> None:
    run_program(MODEL)
    (results / "data").mkdir()
    for split, samples in (("train", 16), ("test", 4)):
        (results / f"data/{split}.jsonl").write_text((json.dumps({"text": "a b c a"}) + "\n") * samples)
    flags = [
        *("--model_name_or_path", "tiny", "--dataset_name", "data", "--dataset_streaming", "true"),
        *("--max_steps", "3", "--logging_steps", "1", "--save_strategy", "no", "--output_dir", "out"),
        *("--use_cpu", "true", "--report_to", "none", "--max_length", "8", "--learning_rate", "0.001"),
        *("--eval_strategy", "steps", "--eval_steps", "2"),
        *("--per_device_train_batch_size", "2", "--gradient_checkpointing", "false", "--bf16", "false"),
    ]
    backend = ("--ddp_backend", "gloo") if processes > 1 else ()
    launch(warm_frameworks, [script, *flags, *backend], results, "trl", processes)
    journal = results / "results/sft/metrics.jsonl"
    found: list[dict[str, Any]] = [dict(record) for record, _ in read_records(journal)]
    assert [(record["event"], record.get("global_step")) for record in found] == [
        *[("start", None), ("step", 1), ("step", 2), ("eval", 2), ("step", 3), ("eval", 3)],
        *[("epoch", 3), ("end", None)],
    ]
    assert found[0]["model"]["architecture"] == "GPT2LMHeadModel"
    # two samples of four words and an end, on each process
    tokens = [10 * processes * step for step in (1, 2, 3)]
    steps = [record for record in found if record["event"] == "step"]
    assert [record["num_tokens"] for record in steps] == tokens
    assert all(record["train_loss"] > 0 and record["grad_norm"] > 0 for record in steps)
    evaluation = found[3]
    assert evaluation["split"] == "val"
    # what trl measures and logs beside the Trainer's own
    assert evaluation["val_loss"] > 0
    assert {"val_entropy", "val_mean_token_accuracy", "val_num_tokens", "val_runtime"} <= evaluation.keys()
    assert found[-1]["status"] == "complete"
