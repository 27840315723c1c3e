"""SIGKILL at random moments of a matrix of programs, continued until it is complete.

python benchmarks/killed_programs.py [KILLS] [SEED] [KIND] [RUNS]

A matrix of RUNS of one KIND, two at once; each program knows nothing of kharness and goes on from its own
checkpoints. KILLS (20) times a process of a program, a bridge, the runner or an agent is killed, in turn: the
first four soon after some more checkpoints were kept, the next four at any moment, also while a program still
imports, and so on. `kharness continue` follows. At the end what each run's own store has kept, its output or
the event files of TensorBoard, is compared with the step records of its journal: the same steps with the same
losses in the same order, over all attempts, and each step counts once. Of several stores it is the one that
counts; what stands in for that is in another one, and each step counts that any of them has.

    prints      a script that prints each step
    sft         trl's own sft.py, by torchrun in two processes
    lightning   a script with a Lightning Trainer
    hydra       one with Hydra
    wandb, trackio, mlflow, tensorboard
                scripts that call these; tensorboard's write all their files into one folder
    two         one that calls Trackio and TensorBoard, and prints
    both        one that calls W&B and TensorBoard
    c           a C program that prints (needs gcc)
    children    a script that prints, ignores SIGTERM and leaves two processes, of which one ignores it, too
    nano        a script of ours with nanoGPT's habits, that goes on by --init_from=resume
    full        a script that prints on a disk that is full at times (needs unshare)
    nanogpt     nanoGPT's train.py (NANOGPT=its folder, with the data of shakespeare_char prepared)
    run_clm     run_clm.py of transformers' examples (RUN_CLM=its path; needs the package evaluate)
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from monitoring.journal.lineage import counting  # noqa: E402
from monitoring.journal.records import read_records  # noqa: E402
from tests.monitoring.bridge import stored  # noqa: E402

KILLS = 20
VICTIMS = ("program", "bridge", "runner", "agent")
# Attempts after a kill, of which none ends well or is killed, until a run that only fails is given up.
SPARE = 12

# Set where the folder of temporary files is on a disk of its own.
DISK = "KILLED_PROGRAMS_DISK"

Stored = Callable[[Path], stored.Losses]


@dataclass(frozen=True)
class Kind:
    """A kind of program."""

    words: Sequence[str]
    """Its command; `{x}` is a number that is different for each run."""
    name: str
    """The end of a word of the command of each of its processes."""
    stored: Stored
    """The steps with their losses that a run's own store has kept, over all attempts."""
    steps: range
    """Those that are to count in the end."""
    checkpoint: str = "kept"
    """Where in a run directory its checkpoints are."""
    resume: str = ""
    prepare: Callable[[Path], None] = lambda folder: None
    """Makes its data and what else it needs in the folder it runs in."""
    disturbed: Callable[[Path], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
    """Work in that folder as long as there are kills."""
    keeps_late: bool = False
    """Whether its store may lack steps that the program has noted as done when it was killed."""
    sources: Sequence[str] = ()
    """Those that report the loss, if there are several."""
    runs: int = 2
    spread: float = 15.0
    """Seconds between two kills, at most."""
    environment: Mapping[str, str] = field(default_factory=dict)


PRINTS = """
import pathlib, sys, time
kept = pathlib.Path(sys.argv[2], "kept")
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


SOURCES: Mapping[str, Stored] = {
    "wandb": lambda run: stored.of_wandb(run / "stores"),
    "trackio": lambda run: stored.of_trackio(run / "stores"),
    "tensorboard": in_one_folder,
    "output": printed,
}


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
    """Copy its files and its data, which it looks for in the folder it runs in."""
    place = Path(os.environ["NANOGPT"])
    for name in ("train.py", "model.py", "configurator.py"):
        shutil.copy(place / name, folder)
    shutil.copytree(place / "data" / "shakespeare_char", folder / "data" / "shakespeare_char")


@contextlib.contextmanager
def full_at_times(folder: Path) -> Iterator[None]:
    """Leave nothing of the disk for up to three seconds, then room for as long, in turns."""
    ended, moments = threading.Event(), random.Random(0)

    def fill_and_free() -> None:
        with (folder / "filler").open("wb", buffering=0) as filler:
            while not ended.wait(3 * moments.random()):
                with contextlib.suppress(OSError):
                    while filler.write(bytes(4096)):
                        pass
                ended.wait(3 * moments.random())
                filler.seek(filler.truncate(0))

    filling = threading.Thread(target=fill_and_free)
    filling.start()
    try:
        yield
    finally:
        ended.set()
        filling.join()


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
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    # read at an import, which a test does once for all programs
    "HF_HOME": os.environ.get("HF_HOME", "{run_dir}/hf"),
    "TOKENIZERS_PARALLELISM": "false",
}
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
        "out/checkpoint-*/trainer_state.json",
        FROM_CHECKPOINT,
        a_language,
        environment=OFFLINE,
    ),
    "lightning": Kind(
        [PYTHON, "trains.py", "--seed", "{x}", "--out", "{run_dir}", "--steps", "100"],
        "trains.py",
        in_event_files("lightning_logs", "train_loss"),
        range(100),
        "lightning_logs/*/checkpoints/*.ckpt",
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
            sources=sources,
            spread=8.0,
        )
        for name, kept, sources in [
            *((name, SOURCES[name], ()) for name in ("wandb", "trackio", "tensorboard")),
            ("mlflow", lambda run: stored.of_mlflow(run / "stores"), ()),
            ("two", printed, ("trackio", "tensorboard", "output")),
            ("both", in_one_folder, ("wandb", "tensorboard")),
        ]
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
    "full": Kind(
        [PYTHON, "trains.py", "{x}", "{run_dir}", "300"],
        "trains.py",
        printed,
        range(1, 301),
        prepare=written("trains.py", PRINTS),
        disturbed=full_at_times,
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
        "out/ckpt.pt",
        "if:{run_dir}/out/ckpt.pt --init_from=resume",
        spread=4.0,
    ),
    "nanogpt": Kind(
        [
            *(
                PYTHON,
                "train.py",
                "--dataset=shakespeare_char",
                "--device=cpu",
                "--compile=False",
                "--dtype=float32",
            ),
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
        "out/ckpt.pt",
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
        "out/checkpoint-*/trainer_state.json",
        FROM_CHECKPOINT,
        a_language,
        environment=OFFLINE,
    ),
}


def main(arguments: list[str]) -> int:
    """Print what was killed and found; 1 if a value is missing or there twice, or nothing was killed."""
    kills, seed, name, runs = (*arguments, *("", "", "", "")[len(arguments) :])[:4]
    kind = KINDS[name or "prints"]
    if kind.disturbed is full_at_times and DISK not in os.environ:
        return on_a_disk_of_its_own()
    moments = random.Random(int(seed or 0))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        kind.prepare(Path(folder))
        killed = trained(kind, folder, int(kills or KILLS), int(runs or kind.runs), moments)
        print(f"{name or 'prints'}, seed {seed or 0}: killed {dict(killed)}")
        if not killed:
            print("  nothing was killed")
        exact = [is_exact(kind, run) for run in sorted((Path(folder) / "results" / "latest").glob("x-*"))]
        return int(not (killed and all(exact) and len(exact) == int(runs or kind.runs)))


def on_a_disk_of_its_own() -> int:
    """Run this command again where a small file system has all its files; its exit code."""
    small = 'mount -t tmpfs -o size=4m tmpfs "$TMPDIR" && exec "$@"'
    own_mounts = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", small, "sh"]
    with tempfile.TemporaryDirectory() as disk:
        environment = {**os.environ, DISK: disk, "TMPDIR": disk}
        return subprocess.run([*own_mounts, PYTHON, *sys.argv], env=environment, check=False).returncode


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
    with kind.disturbed(Path(folder)):
        while killed.total() < kills and spare:
            if found := victim(kind, folder, runner, killed.total(), moments):
                name, pid = found
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed[name] += 1
                spare = SPARE
                if name != "runner":
                    continue
                runner.wait()
            elif complete(folder, runs):
                break
            spare -= 1
            runner = kharness(folder, "continue")
    for _ in range(SPARE):
        runner.wait()
        if complete(folder, runs):
            return killed
        runner = kharness(folder, "continue")
    raise SystemExit(subprocess.run([PYTHON, "-m", "kharness", "status"], cwd=folder, check=False))


def victim(
    kind: Kind, folder: str, runner: subprocess.Popen[bytes], number: int, moments: random.Random
) -> tuple[str, int] | None:
    """Wait for the moment of a kill; who is to be killed, and its process. None once the runner has ended."""
    name = VICTIMS[number % len(VICTIMS)]
    known, new = checkpoints(kind, folder), set[tuple[Path, int]]()
    more = moments.randint(1, 3) if number // len(VICTIMS) % 2 == 0 else 0
    # Some programs write a checkpoint in place: not while they do so, or no attempt could go on.
    pause = 0.1 * (1 + moments.random()) if more else kind.spread * moments.random()
    while runner.poll() is None:
        new |= checkpoints(kind, folder) - known
        if len(new) >= more:
            time.sleep(pause)
            if found := processes(kind, runner.pid, folder).get(name):
                return name, moments.choice(found)
            pause = 0.01
        time.sleep(0.01)
    return None


def checkpoints(kind: Kind, folder: str) -> set[tuple[Path, int]]:
    """Those that stand there now, with when they were written."""
    found = set()
    for path in (Path(folder) / "results" / "latest").glob(f"x-*/{kind.checkpoint}"):
        with contextlib.suppress(OSError):
            found.add((path, path.stat().st_mtime_ns))
    return found


def kharness(folder: str, *words: str) -> subprocess.Popen[bytes]:
    """Start the command."""
    return subprocess.Popen(
        [PYTHON, "-m", "kharness", *words],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def processes(kind: Kind, runner: int, folder: str) -> Mapping[str, list[int]]:
    """Those that could be killed now, by what they are."""
    # What they are, by the end of a word of their commands; agents are forked from one that starts them.
    parts = {"agent": "monitoring.agent.starter", "bridge": "monitoring.bridge", "program": kind.name}
    found = {"runner": [runner]}
    for process in psutil.process_iter(["cmdline", "cwd"]):
        words = process.info["cmdline"] or []
        if process.info["cwd"] == os.path.realpath(folder) and "kharness" not in words:
            for name, word in parts.items():
                if any(given.endswith(word) for given in words):
                    found.setdefault(name, []).append(process.pid)
                    break
    return found


def complete(folder: str, runs: int) -> bool:
    """Whether every run has ended well."""
    said = subprocess.run(
        [PYTHON, "-m", "kharness", "status"], cwd=folder, capture_output=True, text=True, check=False
    )
    return re.search(rf"^{runs} runs?: {runs} complete$", said.stdout, re.MULTILINE) is not None


STAND_INS = {"instead_of", "copy_of"}


def mark_of(record: Mapping[str, object]) -> dict[str, Any]:
    """Say what a record was reported by."""
    mark = record["reported"]
    assert isinstance(mark, dict)
    return mark


def is_exact(kind: Kind, run: Path) -> bool:
    """Whether a journal has what the program's own store kept, each value once, and counts each step once."""
    journal = [record for record, _ in read_records(run / "metrics.jsonl")]
    losses = [(mark_of(r), (r["global_step"], r["train_loss"])) for r in journal if "train_loss" in r]
    others = [(mark["by"], loss) for mark, loss in losses if not mark.keys().isdisjoint(STAND_INS)]
    recorded = [loss for mark, loss in losses if mark.keys().isdisjoint(STAND_INS)]
    stores = {name: SOURCES[name](run) for name in kind.sources} or {"": kind.stored(run)}
    # the poorer one where it alone had any before the first kill
    kept = stores[losses[0][0]["by"]] if kind.sources else stores[""]
    is_kept = all(loss in (stores[name] if kind.sources else kept) for name, loss in others)
    count = [record["global_step"] for record in counting(journal) if "train_loss" in record]
    steps = list(kind.steps)
    if kind.resume == FROM_CHECKPOINT:  # a Trainer that is continued after its last step trains one more
        steps += range(steps[-1] + 1, max((step for step, _ in kept), default=0) + 1)
    if kind.keeps_late:
        steps = sorted({step for store in stores.values() for step, _ in store})
    exact = recorded == kept and is_kept and count == steps
    if recorded != kept:
        at = next(n for n in range(len(kept) + 1) if recorded[: n + 1] != kept[: n + 1])
        print(f"  from value {at} on recorded {recorded[at : at + 4]}, stored {kept[at : at + 4]}")
    attempts = max(int(str(record["attempt"])) for record in journal)
    print(
        f"  {run.name}: {attempts} attempts, {len(kept)} stored, {len(recorded)} recorded, {len(others)} "
        f"stand in, {len(count)} count of {len(steps)}: {'exact' if exact else 'NOT EXACT'}"
    )
    return exact


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
