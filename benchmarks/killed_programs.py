"""SIGKILL at random moments of a matrix of programs, continued until it is complete.

python benchmarks/killed_programs.py [KILLS] [SEED] [KIND] [RUNS]

A matrix of RUNS of one KIND, two at once; each program knows nothing of kharness and goes on from its own
checkpoints. KILLS (20) times the runner, a bridge, a process of a program or an agent is killed, at a random
moment; where the runner was, `kharness continue` follows. At the end what each run's own store has kept, its
output or the event files of TensorBoard, is compared with the step records of its journal: the same steps
with the same losses in the same order, over all attempts, and each step counts once.

    prints      a script that prints each step
    sft         trl's own sft.py, by torchrun in two processes
    lightning   a script with a Lightning Trainer
    hydra       one with Hydra
    wandb, trackio, mlflow, tensorboard
                scripts that call these; tensorboard's write all their files into one folder
    two         one that calls Trackio and TensorBoard, and prints
    c           a C program that prints (needs gcc)
    children    a script that prints, ignores SIGTERM and leaves two processes, of which one ignores it, too
    nano        a script of ours with nanoGPT's habits, that goes on by --init_from=resume
    nanogpt     nanoGPT's train.py (NANOGPT=its folder)
    run_clm     run_clm.py of transformers' examples (RUN_CLM=its path; needs the package evaluate)
"""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from monitoring.journal.lineage import counting  # noqa: E402
from monitoring.journal.records import read_records  # noqa: E402
from tests.monitoring.bridge import stored  # noqa: E402

KILLS = 20
# Attempts beyond those that kills explain, after which a run that only fails is given up.
SPARE = 5

Stored = Callable[[Path], stored.Losses]


@dataclass(frozen=True)
class Kind:
    """A kind of program."""

    words: Sequence[str]
    """Its command; `{x}` is a number that is different for each run."""
    name: str
    """A word of the command of each of its processes."""
    stored: Stored
    """The steps with their losses that a run's own store has kept, over all attempts."""
    steps: range
    """Those that are to count in the end."""
    resume: str = ""
    prepare: Callable[[Path], None] = lambda folder: None
    """Makes its data and what else it needs in the folder it runs in."""
    keeps_late: bool = False
    """Whether its store may lack steps that the program has noted as done when it was killed."""
    runs: int = 2
    spread: float = 15.0
    """Seconds between two kills, at most."""
    environment: Mapping[str, str] = field(default_factory=dict)


PRINTS = """
import pathlib, sys, time
kept = pathlib.Path(sys.argv[2], "step")
first = int(kept.read_text()) + 1 if kept.exists() else 1
for step in range(first, int(sys.argv[3]) + 1):
    time.sleep(0.05)
    print(f"iter {step}: loss {1 / step / float(sys.argv[1]):.6f}, time 1.00ms", flush=True)
    if step % 10 == 0:
        new = kept.with_name("new")
        new.write_text(str(step))
        new.replace(kept)
"""
LEAVES = """
import signal, subprocess
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["env", "--default-signal=TERM", "sleep", "600"], start_new_session=True)
"""
OF_HYDRA = f"""
import sys, hydra

@hydra.main(config_path=None)
def main(config):
    sys.argv[1:] = [str(config.x), config.kept, str(config.steps)]
    exec({PRINTS!r}, {{}})

main()
"""
OF_LIGHTNING = """
import argparse, time, torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("--out")
parser.add_argument("--steps", type=int)
parser.add_argument("--ckpt_path")
given = parser.parse_args()

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, number):
        time.sleep(0.05)
        loss = self.layer(batch).square().mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

seed_everything(given.seed)
data = torch.utils.data.DataLoader(torch.randn(4 * given.steps, 4), batch_size=4)
kept = ModelCheckpoint(every_n_train_steps=10, save_top_k=-1)
trainer = Trainer(default_root_dir=given.out, max_steps=given.steps, log_every_n_steps=1, callbacks=[kept],
                  accelerator="cpu", enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Net(), data, ckpt_path=given.ckpt_path)
"""

PROGRAMS = ROOT / "tests/monitoring/bridge"


def printed(run: Path) -> stored.Losses:
    return stored.printed(run / "output.log")


def in_event_files(folder: str, tag: str) -> Stored:
    """Return what TensorBoard's own reader finds in a folder of a run."""
    return lambda run: stored.of_event_files(list((run / folder).rglob("*tfevents*")), tag)


def in_one_folder(run: Path) -> stored.Losses:
    """Return what a run has written into the folder of all runs: its losses are x times the usual."""
    x = float(run.name.removeprefix("x-"))
    files = list((run.parent.parent.parent / "runs" / "a").glob("*tfevents*"))
    return [
        (step, loss)
        for step, loss in stored.of_event_files(files, "loss")
        if round(loss * (step + 1) / 4) == x
    ]


def richest(run: Path) -> stored.Losses:
    """Trackio's, or TensorBoard's where the first attempt was killed before Trackio had kept any."""
    found = [stored.of_trackio(run / "stores"), in_one_folder(run)]
    recorded = [r["train_loss"] for r, _ in read_records(run / "metrics.jsonl") if "train_loss" in r]
    return found[0] if recorded == [loss for _, loss in found[0]] else found[1]


def written(name: str, text: str) -> Callable[[Path], None]:
    return lambda folder: print(end=text, file=(folder / name).open("w"))


def a_language(folder: Path) -> None:
    """Make a text of ten words, its tokenizer, and a model of 16 dimensions for it."""
    import numpy
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[EOS]", "the", "cat", "sat", "on", "a", "mat", "and", "ran", "far"]
    for name in ("data", "model"):
        (folder / name).mkdir()
    lines = [" ".join(random.Random(n).choices(words[1:], k=12)) for n in range(400)]
    (folder / "train.txt").write_text("\n".join(lines))
    (folder / "data" / "train.jsonl").write_text("".join(f'{{"text": "{line}"}}\n' for line in lines))
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="[EOS]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "model" / "tokenizer.json"))
    named = {"eos_token": "[EOS]", "pad_token": "[EOS]", "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(named))
    shape = {"vocab_size": 10, "n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", **shape}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    # what a file of weights lacks is initialized
    weights = {"transformer.wte.weight": numpy.zeros((10, 16), numpy.float32)}
    save_file(weights, folder / "model" / "model.safetensors", metadata={"format": "pt"})


def compiled(folder: Path) -> None:
    subprocess.run(["gcc", "-o", folder / "prints", PROGRAMS / "prints.c"], check=True)


def nanogpt(folder: Path) -> None:
    """Copy its files, which it looks for in the folder it runs in, and make its data."""
    import numpy

    for name in ("train.py", "model.py", "configurator.py"):
        shutil.copy(Path(os.environ["NANOGPT"]) / name, folder)
    data = folder / "data" / "ours"
    data.mkdir(parents=True)
    for part in ("train", "val"):
        numpy.random.default_rng(0).integers(0, 16, 5000).astype(numpy.uint16).tofile(data / f"{part}.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 16}))


PYTHON = sys.executable
TRAINER = [
    *("--output_dir", "{run_dir}/out", "--seed", "{x}", "--save_steps", "5"),
    *(
        "--logging_steps",
        "1",
        "--report_to",
        "tensorboard",
        "--per_device_train_batch_size",
        "2",
        "--use_cpu",
    ),
    *("--disable_tqdm", "true"),
]
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HOME": "{run_dir}/hf", "TOKENIZERS_PARALLELISM": "false"}
FROM_CHECKPOINT = "--resume_from_checkpoint {run_dir}/out/checkpoint-*/trainer_state.json/.."

KINDS = {
    "prints": Kind(
        [PYTHON, "trains.py", "{x}", "{run_dir}", "300"],
        "trains.py",
        printed,
        range(1, 301),
        prepare=written("trains.py", PRINTS),
        runs=4,
        spread=4.0,
    ),
    "sft": Kind(
        [
            *(PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
            *("-m", "trl.scripts.sft", "--model_name_or_path", "model", "--dataset_name", "data", *TRAINER),
            *("--max_length", "16", "--gradient_checkpointing", "false", "--max_steps", "60"),
        ],
        "trl.scripts.sft",
        in_event_files("stores/tensorboard", "train/loss"),
        range(1, 61),
        FROM_CHECKPOINT,
        a_language,
        environment=OFFLINE,
    ),
    "lightning": Kind(
        [PYTHON, "trains.py", "--seed", "{x}", "--out", "{run_dir}", "--steps", "100"],
        "trains.py",
        in_event_files("lightning_logs", "train_loss"),
        range(100),
        "--ckpt_path {run_dir}/lightning_logs/*/checkpoints/*.ckpt",
        written("trains.py", OF_LIGHTNING),
    ),
    "hydra": Kind(
        [
            *(PYTHON, "trains.py", "+x={x}", "+kept={run_dir}", "+steps=300"),
            "hydra.run.dir={run_dir}/hydra",
        ],
        "trains.py",
        printed,
        range(1, 301),
        prepare=written("trains.py", OF_HYDRA),
        runs=4,
        spread=4.0,
    ),
    **{
        name: Kind(
            [PYTHON, str(PROGRAMS / "programs.py"), name, "300", "0.03", "{run_dir}/kept", "{x}"],
            "programs.py",
            kept,
            range(300),
            keeps_late=True,
            spread=8.0,
        )
        for name, kept in {
            "wandb": lambda run: stored.of_wandb(run / "stores"),
            "trackio": lambda run: stored.of_trackio(run / "stores"),
            "mlflow": lambda run: stored.of_mlflow(run / "stores"),
            "tensorboard": in_one_folder,
            "two": richest,
        }.items()
    },
    "c": Kind(
        ["./prints", "300", "0.03", "{run_dir}/kept", "{x}"],
        "./prints",
        printed,
        range(300),
        prepare=compiled,
        spread=4.0,
    ),
    "children": Kind(
        [PYTHON, "trains.py", "{x}", "{run_dir}", "300"],
        "trains.py",
        printed,
        range(1, 301),
        prepare=written("trains.py", LEAVES + PRINTS),
        spread=4.0,
    ),
    "nano": Kind(
        [
            *(PYTHON, str(PROGRAMS / "nano.py"), "--out_dir={run_dir}/out", "--max_iters=300"),
            *("--pause=0.03", "--learning_rate={x}"),
        ],
        "nano.py",
        printed,
        range(301),
        "if:{run_dir}/out/ckpt.pt --init_from=resume",
        spread=4.0,
    ),
    "nanogpt": Kind(
        [
            *(PYTHON, "train.py", "--dataset=ours", "--device=cpu", "--compile=False", "--dtype=float32"),
            *(
                "--eval_iters=2",
                "--eval_interval=250",
                "--log_interval=1",
                "--block_size=16",
                "--batch_size=4",
            ),
            *("--gradient_accumulation_steps=1", "--n_layer=1", "--n_head=2", "--n_embd=16", "--dropout=0.0"),
            *("--max_iters=1500", "--always_save_checkpoint=True", "--learning_rate={x}e-3"),
            "--out_dir={run_dir}/out",
        ],
        "train.py",
        printed,
        range(1501),
        "if:{run_dir}/out/ckpt.pt --init_from=resume",
        nanogpt,
        spread=6.0,
    ),
    "run_clm": Kind(
        [
            *(PYTHON, os.environ.get("RUN_CLM", "run_clm.py"), "--model_name_or_path", "model", "--do_train"),
            *("--train_file", "train.txt", "--block_size", "16", "--validation_split_percentage", "10"),
            *(*TRAINER, "--max_steps", "300"),
        ],
        os.environ.get("RUN_CLM", "run_clm.py"),
        in_event_files("stores/tensorboard", "train/loss"),
        range(1, 301),
        FROM_CHECKPOINT,
        a_language,
        environment=OFFLINE,
    ),
}


def main(arguments: list[str]) -> int:
    """Print what was killed and what was found; 1 if a value is missing or there twice."""
    kills, seed, name, runs = (*arguments, *("", "", "", "")[len(arguments) :])[:4]
    kind = KINDS[name or "prints"]
    moments = random.Random(int(seed or 0))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        kind.prepare(Path(folder))
        killed = trained(kind, folder, int(kills or KILLS), int(runs or kind.runs), moments)
        print(f"{name or 'prints'}, seed {seed or 0}: killed {dict(killed)}")
        exact = [is_exact(kind, run) for run in sorted((Path(folder) / "results" / "latest").glob("x-*"))]
        return int(not all(exact) or len(exact) != int(runs or kind.runs))


def trained(kind: Kind, folder: str, kills: int, runs: int, moments: random.Random) -> Counter[str]:
    """Train it to the end with so many kills, or as many as it takes; what was killed, and how often."""
    given = [word for pair in kind.environment.items() for word in ("-e", "=".join(pair))]
    given += ["--resume-with", kind.resume] if kind.resume else []
    # A rank of gloo may hang while its process ends, all steps done: that attempt is ended and continued.
    limits = ["--jobs", "2", "--retries", "0", "--timeout", "120"]
    start = ["matrix", "-a", f"x=1..{runs}", *limits, *given, "--", *kind.words]
    runner = kharness(folder, *start)
    while not (Path(folder) / "results" / "latest").exists():  # a plan that was cut off is none to continue
        time.sleep(0.01)
    killed: Counter[str] = Counter()
    spare = SPARE
    while True:
        if killed.total() < kills:
            time.sleep(kind.spread * moments.random())
        else:
            runner.wait()
        if runner.poll() is None:
            name, pid = chosen(kind, runner.pid, folder, moments)
            os.kill(pid, signal.SIGKILL)
            killed[name] += 1
            if name != "runner":
                continue
            runner.wait()
        elif complete(folder, runs):
            return killed
        else:
            spare -= killed.total() >= kills
            if spare < 0:
                raise SystemExit(
                    subprocess.run([PYTHON, "-m", "kharness", "status"], cwd=folder, check=False)
                )
        runner = kharness(folder, "continue")


def kharness(folder: str, *words: str) -> subprocess.Popen[bytes]:
    """Start the command."""
    return subprocess.Popen(
        [PYTHON, "-m", "kharness", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def chosen(kind: Kind, runner: int, folder: str, moments: random.Random) -> tuple[str, int]:
    """One of the processes that could be killed now, and what it is."""
    # What the processes are, by a word of their commands; agents are forked from one that starts them.
    parts = {"agent": "monitoring.agent.starter", "bridge": "monitoring.bridge", "program": kind.name}
    found = {"runner": [runner]}
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == os.path.realpath(folder) and "kharness" not in words:
            for name, word in parts.items():
                if word in words:
                    found.setdefault(name, []).append(process.pid)
                    break
    name = moments.choice(sorted(found))
    return name, moments.choice(found[name])


def complete(folder: str, runs: int) -> bool:
    """Whether every run has ended well."""
    said = subprocess.run(
        [PYTHON, "-m", "kharness", "status"], cwd=folder, capture_output=True, text=True, check=False
    )
    return re.search(rf"^{runs} runs?: {runs} complete$", said.stdout, re.MULTILINE) is not None


def is_exact(kind: Kind, run: Path) -> bool:
    """Whether a journal has what the program's own store kept, each value once, and counts each step once."""
    kept = kind.stored(run)
    journal = [record for record, _ in read_records(run / "metrics.jsonl")]
    recorded = [(r["global_step"], r["train_loss"]) for r in journal if "train_loss" in r]
    count = [record["global_step"] for record in counting(journal) if "train_loss" in record]
    steps = list(kind.steps)
    if kind.resume == FROM_CHECKPOINT:  # a Trainer that is continued after its last step trains one more
        steps += range(steps[-1] + 1, max((step for step, _ in kept), default=0) + 1)
    if kind.keeps_late:
        steps = sorted({step for step, _ in kept})
    exact = recorded == kept and count == steps
    attempts = max(int(str(record["attempt"])) for record in journal)
    print(
        f"  {run.name}: {attempts} attempts, {len(kept)} stored, {len(recorded)} recorded, "
        f"{len(count)} count: {'exact' if exact else 'NOT EXACT'}"
    )
    return exact


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
