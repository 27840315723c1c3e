"""Curves of trainings that are made up, each with what is wrong with it: one function a family, by seed.

A family is positive for one rule, whose name it has, or negative for all of them. The noise is that of real
trainings: a loss that falls as a power of the step with 8% of noise, gradients whose logarithm is normal, and
step times with a slow one now and then.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

Row = dict[str, object]

STEPS = 600


def _steps(noise: random.Random, **changes: Callable[[int, float], float]) -> Iterator[Row]:
    """A training that is well, and what `changes` makes of each value at a step."""
    level, size = noise.uniform(0.5, 3.0), noise.uniform(0.2, 3.0)
    for step in range(1, STEPS + 1):
        seconds = 0.05 * noise.gauss(1.0, 0.05) * (8.0 if noise.random() < 0.01 else 1.0)
        values = {
            "train_loss": level * step**-0.3 * noise.gauss(1.0, 0.08),
            "grad_norm": size * noise.lognormvariate(0.0, 0.4),
            "sec_per_step": seconds,
            "cpu_mem_rss_mb": 2000 + 30 * noise.random() + (200 if step > 30 else 0),
        }
        for name, change in changes.items():
            values[name] = change(step, values[name])
        yield {"event": "step", "time": 10.0 * step, "global_step": step, **values}


def _evaluated(noise: random.Random, excess: Callable[[int], float]) -> Iterator[Row]:
    """With an evaluation every 20 steps, whose loss is above that of the training by a share."""
    for row in _steps(noise):
        yield row
        step = int(str(row["global_step"]))
        if step % 20 == 0:
            loss = 2.0 * step**-0.3 * excess(step) * noise.gauss(1.0, 0.01)
            yield {**row, "event": "eval", "val_loss": loss}


def healthy(noise: random.Random) -> Iterator[Row]:
    """Nothing is wrong with it."""
    return _steps(noise)


def generalizes(noise: random.Random) -> Iterator[Row]:
    """Its validation loss falls like that of the training."""
    return _evaluated(noise, lambda step: 1.05)


def fills_caches(noise: random.Random) -> Iterator[Row]:
    """Memory rises by a third in the first tenth, then goes up and down like a saw."""
    return _steps(noise, cpu_mem_rss_mb=lambda step, value: value + 10 * min(step, 60) + 2 * (step % 50))


def noisy(noise: random.Random) -> Iterator[Row]:
    """Small batches, and a machine that others use: losses and step times jump by a quarter and more."""

    def jumps(step: int, value: float) -> float:
        return value * noise.lognormvariate(0.0, 0.25)

    return _steps(noise, train_loss=jumps, sec_per_step=jumps, grad_norm=jumps, cpu_mem_rss_mb=jumps)


def speeds_up(noise: random.Random) -> Iterator[Row]:
    """Steps become faster, and the gradient smaller by a hundred, as at the end of a schedule."""
    shrinking = {"grad_norm": lambda step, value: value * 0.01 ** (step / STEPS)}
    return _steps(noise, sec_per_step=lambda step, value: value * (1 - step / 2 / STEPS), **shrinking)


def warms_up(noise: random.Random) -> Iterator[Row]:
    """Its loss rises slowly by half while the learning rate does."""
    return _steps(noise, train_loss=lambda step, value: value * (1 + 0.5 * min(step, 200) / 200))


def loss_spike(noise: random.Random) -> Iterator[Row]:
    """A loss of twice to six times what it was, and back within a few steps."""
    at, size = noise.randrange(100, STEPS - 50), noise.uniform(2.0, 6.0)
    leap = {at + late: size ** (1 - late / 5) for late in range(5)}
    return _steps(noise, train_loss=lambda step, value: value * leap.get(step, 1.0))


def vanishing_gradient(noise: random.Random) -> Iterator[Row]:
    """Gradients become a millionth of what they were, from one step on or over a hundred."""
    at, lasts = noise.randrange(100, STEPS - 250), noise.choice([1, 100])
    return _steps(
        noise, grad_norm=lambda step, value: value * 1e-6 ** min(1.0, max(0.0, (step - at) / lasts))
    )


def overfitting(noise: random.Random) -> Iterator[Row]:
    """Validation loss rises from some step on, by a fifth to a half per hundred steps."""
    at, rate = noise.randrange(100, STEPS - 250), noise.uniform(0.2, 0.5)
    return _evaluated(noise, lambda step: 1.05 + rate * max(0, step - at) / 100)


def step_time(noise: random.Random) -> Iterator[Row]:
    """Steps take 1.8 to 4 times as long for a while, as beside another program."""
    at, factor, lasts = noise.randrange(100, STEPS - 100), noise.uniform(1.8, 4.0), noise.randrange(20, 90)
    return _steps(noise, sec_per_step=lambda step, value: value * (factor if 0 <= step - at < lasts else 1.0))


def memory_leak(noise: random.Random) -> Iterator[Row]:
    """1 to 5 MB a step, with a saw's teeth upon it."""
    rate = noise.uniform(1.0, 5.0)
    return _steps(noise, cpu_mem_rss_mb=lambda step, value: value + rate * step + 2 * (step % 20))


FAMILIES = [
    *(healthy, noisy, generalizes, fills_caches, speeds_up, warms_up),
    *(loss_spike, vanishing_gradient, overfitting, step_time, memory_leak),
]
