"""Which trainings are recorded: model, options and fault of each, drawn by its number."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

# Peak learning rates of the optimizers, as in lib/kharness/training/optimizers/Kconfig.
RATES = {
    "adafactor": 0.05,
    "adam": 0.003,
    "adamw": 0.003,
    "adamwadv": 0.003,
    "adamwprune": 0.003,
    "adamwspam": 0.003,
    "ademamix": 0.003,
    "lion": 0.001,
    "muon": 0.02,
    "nadamw": 0.003,
    "schedulefree": 0.01,
    "sgd": 0.05,
    "soap": 0.01,
    "spam": 0.003,
}
WITH_MOMENTS = ("adam", "adamw", "adamwadv", "adamwspam", "ademamix", "nadamw", "spam")
SCHEDULES = ("constant", "cosine", "onecycle", "stable")

# In this order again and again, so that the first N of all are a fair sample: what is done to a training.
KINDS = (
    *("healthy", "random_labels", "healthy", "rate", "healthy", "slow_step", "healthy", "explosion"),
    *("healthy", "slow_gradual", "healthy", "wrong_inputs", "resumed", "nan", "healthy", "rate"),
    *("pruned", "slow_tenth", "healthy", "random_labels", "healthy", "vanishing", "resumed", "label_noise"),
    *("healthy", "rate", "pruned", "overfitting", "healthy", "shuffled", "healthy", "slow_steps"),
)
"""healthy, resumed and pruned trainings have no fault."""

MODELS = ("lenet5", "gpt2", "lenet5", "resnet50", "lenet5", "gpt2", "lenet5", "gpt2", "lenet5")


@dataclass(frozen=True)
class Fault:
    """A fault put into a training, besides its options, and its steps (from 1)."""

    kind: str
    first: int = 0
    lasts: int = 1
    size: float = 1.0
    """How often as long a step takes; what inputs or gradients are multiplied by; a share of the labels."""

    def __contains__(self, step: int) -> bool:
        return self.first <= step < self.first + self.lasts


@dataclass(frozen=True)
class Burst:
    """A process that keeps a processor busy now and then; seconds."""

    begins: float
    busy: float
    idle: float


@dataclass(frozen=True)
class Setting:
    """One training to record."""

    number: int
    kind: str
    model: str
    rate_factor: float
    """The peak learning rate in defaults of its optimizer."""
    steps: int
    flags: dict[str, str]
    faults: list[Fault] = field(default_factory=list)
    stops_after: int | None = None
    """Step after which the first attempt is stopped, to be resumed."""
    threads: int = 1
    bursts: list[Burst] = field(default_factory=list)
    """Bursts of other work, one process each. With any, times are those of the wall clock."""


# From this number on trainings are LeNet-5's as a newcomer begins: its defaults, some steps of them.
PLAIN = 1000

# From this one on they share the machine with other work in bursts; every fourth is slow by itself too.
LOADED = 3000
SLOW_BY_ITSELF = ("slow_step", "slow_busy", "slow_tenth", "slow_gradual")

# From this one on they are the first matrix of a newcomer (defconfigs/default), with SGD.
FIRST_MATRIX = 3500

# From this one on they are good settings, each with five seeds, so that each has a usual outcome. Rules
# were changed after a look at those before 5000.
USUAL = 4000
SEEDS = 5
BLOCKS = (
    *("first", "lenet5", "gpt2", "lenet5", "first", "lenet5"),
    *("gpt2", "lenet5", "first", "resnet50", "lenet5", "gpt2"),
)
"""`first` are the variants of the first matrix of a newcomer."""


def setting(number: int) -> Setting:
    """The training of this number; the same each time."""
    draw = random.Random(f"alerts {number}")
    if number >= USUAL:
        return _usual(number)
    if number >= FIRST_MATRIX:
        return _first(number, "sgd", seed=number - FIRST_MATRIX + 1)
    if number >= LOADED:
        return _loaded(number, draw)
    if number >= PLAIN:
        return _plain(number, draw)
    kind, model = KINDS[number % len(KINDS)], draw.choice(MODELS)
    if kind in ("overfitting", "label_noise", "shuffled") and model == "gpt2":
        model = "lenet5"
    optimizer = draw.choice(sorted(RATES))
    if kind == "pruned" and draw.random() < 0.3:
        optimizer = "adamwprune"
    factor = math.exp(draw.uniform(math.log(0.3), math.log(1.5)))
    if kind == "rate":
        factor = math.exp(draw.uniform(math.log(5), math.log(1000)))
    steps, flags = _sized(model, draw)
    flags |= {"optimizer": optimizer, "seed": str(draw.randrange(1, 1000))}
    if optimizer != "schedulefree":
        flags["schedule"] = draw.choice(SCHEDULES)
    flags["learning-rate"] = f"{RATES[optimizer] * factor:.4g}"
    if kind == "pruned":
        flags |= _pruning(optimizer, draw)
    if kind == "overfitting":
        steps = 1000 if model == "lenet5" else 250
        share = f"{model}-validation-fraction"
        flags |= {"lenet5-shift": "0", share: "0.5", "batch-size": "32", "schedule": "constant"}
        flags = {
            name: value
            for name, value in flags.items()
            if not (optimizer == "schedulefree" and name == "schedule")
        }
    flags |= {
        "max-steps": str(steps),
        "num-epochs": "1000",
        "eval-interval": str(max(10, steps // (12 if kind == "overfitting" else 4))),
    }
    stops = draw.randrange(steps // 3, 2 * steps // 3) if kind == "resumed" else None
    return Setting(number, kind, model, factor, steps, flags, _faults(kind, steps, draw), stops)


def _plain(number: int, draw: random.Random) -> Setting:
    optimizer, steps = draw.choice(["sgd", "sgd", "adam", "adamw", "adamwspam"]), draw.choice([215, 430])
    flags = {"optimizer": optimizer, "seed": str(draw.randrange(1, 100000)), "max-steps": str(steps)}
    flags |= {
        "batch-size": draw.choice(["64", "128"]),
        "num-epochs": "1000",
        "eval-interval": str(steps // 4),
    }
    return Setting(number, "healthy", "lenet5", 1.0, steps, flags)


def _first(number: int, optimizer: str, seed: int) -> Setting:
    flags = {"optimizer": optimizer, "num-epochs": "2", "eval-interval": "34", "seed": str(seed)}
    return Setting(number, "healthy", "lenet5", 1.0, 170, flags)


def _usual(number: int) -> Setting:
    """Sensible settings, which are those of a block of SEEDS numbers; only the seed is a number's own."""
    block = (number - USUAL) // SEEDS
    draw, kind = random.Random(f"alerts usual {block}"), BLOCKS[block % len(BLOCKS)]
    seed = random.Random(f"alerts usual {block} {number}").randrange(100, 100000)
    if kind == "first":
        return _first(number, draw.choice(["sgd", "sgd", "adamw", "muon"]), seed)
    optimizer, factor = draw.choice(sorted(RATES)), math.exp(draw.uniform(math.log(0.3), math.log(1.5)))
    steps, flags = _sized(kind, draw)
    if kind == "lenet5":
        batch = draw.choice([8, 16, 32, 64, 128])
        steps = min(draw.randrange(170, 431), 16000 // batch)
        flags["batch-size"] = str(batch)
    elif kind == "resnet50":
        steps, flags["batch-size"] = draw.randrange(150, 201), "32"
    flags |= {"optimizer": optimizer, "learning-rate": f"{RATES[optimizer] * factor:.4g}", "seed": str(seed)}
    if optimizer != "schedulefree":
        flags["schedule"] = draw.choice(SCHEDULES)
    flags |= {"max-steps": str(steps), "num-epochs": "1000", "eval-interval": str(steps // 4)}
    return Setting(number, "healthy", kind, factor, steps, flags)


def _loaded(number: int, draw: random.Random) -> Setting:
    model = ("lenet5", "gpt2", "resnet50")[number % 3]
    _, flags = _sized(model, draw)
    steps = {"lenet5": 400, "gpt2": 160, "resnet50": 120}[model]
    flags |= {"batch-size": {"lenet5": "64", "gpt2": "16", "resnet50": "16"}[model], "optimizer": "adamw"}
    flags |= {"seed": str(draw.randrange(1, 100000)), "max-steps": str(steps), "num-epochs": "1000"}
    flags |= {"eval-interval": str(steps)}
    kind = SLOW_BY_ITSELF[number // 4 % len(SLOW_BY_ITSELF)] if number % 4 == 3 else "healthy"
    faults = _faults(kind, steps, draw)
    if kind == "slow_busy":
        faults = [Fault("slow_busy", steps // 3, steps, draw.uniform(2.0, 4.0))]
    bursts = [
        Burst(draw.uniform(0, 5), draw.uniform(0.5, 8), draw.uniform(1, 8))
        for _ in range(draw.choice([1, 2]))
    ]
    threads = 2 if number % 8 == 5 else 1
    return Setting(number, kind, model, 1.0, steps, flags, faults, threads=threads, bursts=bursts)


def _sized(model: str, draw: random.Random) -> tuple[int, dict[str, str]]:
    """Steps and sizes with which a training takes some seconds on one core."""
    if model == "lenet5":
        batch = draw.choice([8, 8, 16, 16, 32])
        steps = min(draw.randrange(250, 601), 10000 // batch)
        return steps, {"batch-size": str(batch), "lenet5-shift": draw.choice("02")}
    if model == "gpt2":
        flags = {
            "gpt2-recipe": draw.choice(["gpt2", "gpt2", "modern"]),
            "gpt2-layers": draw.choice("23"),
            "gpt2-width": draw.choice(["32", "64"]),
            "gpt2-block-size": "32",
            "gpt2-sample-tokens": "0",
            "gradient-clip": draw.choice(["1", "1", "0"]),
            "batch-size": draw.choice(["8", "16"]),
            "eval-samples": "4",
            "eval-batch-size": "16",
        }
        return draw.randrange(200, 351), flags
    flags = {"resnet50-blocks": "1 1 1 1", "resnet50-stem": "imagenet", "resnet50-width": "16"}
    flags["batch-size"] = draw.choice(["16", "32"])
    return draw.randrange(200, 301), flags


def _pruning(optimizer: str, draw: random.Random) -> dict[str, str]:
    methods = ["magnitude", "movement", "random", "semi-structured"]
    if optimizer in (*WITH_MOMENTS, "adamwprune"):
        methods.append("state")
    method = "state" if optimizer == "adamwprune" else draw.choice(methods)
    sparsity = {} if method == "semi-structured" else {"pruning-sparsity": draw.choice(["0.5", "0.7", "0.9"])}
    return {"pruning": method, **sparsity}


def _faults(kind: str, steps: int, draw: random.Random) -> list[Fault]:
    at = draw.randrange(steps * 3 // 10, steps * 9 // 10)
    if kind in ("random_labels", "wrong_inputs", "explosion"):
        size = math.exp(draw.uniform(math.log(20), math.log(2000))) if kind == "explosion" else 30.0
        return [Fault(kind, at, 1, size)]
    if kind == "nan":
        return [Fault(kind, at)]
    if kind == "vanishing":
        return [Fault(kind, at // 2, steps, 10 ** draw.uniform(-10, -7))]
    if kind in ("label_noise", "shuffled"):
        return [Fault(kind, 1, steps, 1.0 if kind == "shuffled" else draw.uniform(0.2, 0.6))]
    if kind == "slow_step":  # from one step on
        return [Fault("slow", at * 2 // 3, steps, draw.uniform(1.8, 4.0))]
    if kind == "slow_steps":  # for a while
        return [Fault("slow", at, draw.randrange(25, 60), draw.uniform(1.8, 4.0))]
    if kind == "slow_gradual":
        first = draw.randrange(60, steps // 2)
        return [Fault("slow_gradual", first, steps, draw.uniform(2.0, 3.0))]
    if kind == "slow_tenth":
        return [Fault("slow_tenth", draw.randrange(1, steps // 2), steps, draw.uniform(8.0, 20.0))]
    return []
