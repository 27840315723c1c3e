"""Builds model, data, optimizer and schedule: what can fail does so here, before the run begins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from kharness.config.assignment import AUTO
from kharness.config.options import Options
from kharness.config.output import wrapped
from kharness.training.checkpoint import Stateful
from kharness.training.data import Batches
from kharness.training.determinism import Numerics, make_deterministic, set_tf32
from kharness.training.device import Compute, set_threads, take_device, uses_bf16
from kharness.training.distributed.model import FSDP, share_model
from kharness.training.distributed.world import World
from kharness.training.due import few_validations, planned_steps
from kharness.training.fake_tensors import ModelWithoutValues
from kharness.training.optimizers import build_optimizer
from kharness.training.optimizers._averages import moving_average, weights_of
from kharness.training.optimizers._own import BuildOptimizers, OwnOptimizers
from kharness.training.progress import StepProgress
from kharness.training.pruning import Pruner, build_pruner
from kharness.training.saving.sharded import is_sharded
from kharness.training.schedules import OptionSchedules, Schedule
from kharness.training.seeds import Generators, seed_everything, seed_rank
from monitoring.counts import counted
from monitoring.telemetry.profiler import configured_profiler


class Data(Protocol):
    """The data of a training, in a form of the model's own."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Samples by split: `train`, and what else there is."""

    @property
    def sha256(self) -> str:
        """Which data they are, over the content of their files."""


BatchT = TypeVar("BatchT", covariant=True)


class Split(Protocol[BatchT]):
    """A part of the data."""

    def batch(self, indices: Tensor, /) -> BatchT:
        """Return the model's inputs and targets for the given indices."""


@runtime_checkable
class PreparedData(Protocol):
    """Data that reads ahead, or that has a state of its own."""

    def begin(self, batches: Batches) -> Mapping[str, Stateful]:
        """Learn which batches will be requested, before the first is; the parts that a checkpoint keeps."""


DataT = TypeVar("DataT", bound=Data)

Prepare = Callable[[Options, torch.device], tuple[nn.Module, DataT]]
"""The model on the device, with its first weights, and its data."""


MOST_PARTS = 12
"""Parts of a model that its one-line summary names."""


def model_name(model: nn.Module) -> str:
    """The name of its class, which FSDP2 replaces by one with another name."""
    name = type(model).__name__
    return name.removeprefix("FSDP") if any(map(is_sharded, model.parameters())) else name


def summary(model: nn.Module) -> str:
    """Name, number of parameters and the parts that have some; a parameter that two share counts once."""
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = name.partition(".")[0]
        counts[part] = counts.get(part, 0) + parameter.numel()
    total = sum(counts.values())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    parts = [f"{name} {count:,}" for name, count in counts.items()]
    parts = [*parts[:MOST_PARTS], *["…"] * (len(parts) > MOST_PARTS)]
    some = f", {trained:,} of them trained" if trained != total else ""
    return f"{model_name(model)}, {total:,} parameters{some}: {', '.join(parts)}"


class Setup(Generic[DataT]):
    """A training that has not begun, made as options say and printed; TrainingError for what cannot be."""

    def __init__(
        self,
        options: Options,
        prepare: Prepare[DataT],
        world: World,
        optimizers: BuildOptimizers | None = None,
    ) -> None:
        self.options, self.world = options, world
        if options.DETERMINISTIC:
            make_deterministic()
        self.device = take_device(options.DEVICE, world.local_rank)
        device = self.device.torch
        set_tf32(device, bool(options.MATMUL_TF32))
        if (profiler := configured_profiler(options.values)) is not None:
            profiler.check(device.type)
        threads = set_threads(options.NUM_THREADS, processes=world.local_size)
        # Before the model, whose first weights are random.
        seed_everything(options.SEED)
        self.model, self.data = model, data = prepare(options, device)
        self.unsharded_model: ModelWithoutValues | None = None
        """The model before ranks shared it, where its FLOPs are to be counted."""
        is_shared = world.size > 1 and options.PARALLEL == FSDP
        if is_shared:
            if options.INCLUDE_PERFORMANCE_METRICS:
                self.unsharded_model = ModelWithoutValues(model)
            # on a CPU only linear layers compute in bfloat16, from weights in float32
            bf16 = device.type == "cuda" and uses_bf16(str(options.AMP), device)
            share_model(model, world, device, bf16=bf16)
        else:
            model.to(device)
        self.batches = Batches(
            data.sizes["train"], options.BATCH_SIZE, seed=options.SEED, device=device, world=world
        )
        self.tokens_per_sample: int | None = getattr(data, "tokens_per_sample", None)
        """None of data without it: only text has sequences of one length."""
        num_steps = planned_steps(
            options.values,
            steps_per_epoch=self.batches.steps_per_epoch,
            tokens_per_step=self.tokens_per_sample and self.tokens_per_sample * self.batches.batch_size,
        )
        own = optimizers(model, options) if optimizers else OwnOptimizers()
        with own.parameters_taken(model):
            optimizer, described = build_optimizer(options.OPTIMIZER, model, options.values)
        self.optimizer_options = {**described, **own.described(model)}
        self.optimizer = own.joined(optimizer, options.LEARNING_RATE)
        self.apart = own.apart
        """Optimizers that step by losses of their own, by name."""
        self.schedule = Schedule.read(options, num_steps=num_steps)
        moving = options.SCHEDULE_OPTIONS or ""
        self.option_schedules = OptionSchedules(moving, self.optimizer, num_steps=num_steps)
        self.pruner = build_pruner(
            options.PRUNING, model, self.optimizer, options.values, num_steps=num_steps
        )
        if world.size > 1 and isinstance(self.pruner, Pruner):
            self.pruner.agree = world.overwrite
        self.numerics = Numerics.of(device)
        if options.DETERMINISTIC:
            self.numerics.check()
        # after the weights, which all ranks have drawn alike: from here on each draws for its own samples
        if world.rank:
            seed_rank(options.SEED, world.rank)
        self.weights = weights_of(model, self.optimizer)
        self.progress = StepProgress(device)
        self.average = moving_average(model, options.EMA_DECAY)
        """Moving average of the weights, with EMA_DECAY."""
        self.data_parts: Mapping[str, Stateful] = (
            data.begin(self.batches) if isinstance(data, PreparedData) else {}
        )
        self._tell(counted(threads, "CPU thread"), " that share the model" if is_shared else "")

    def _tell(self, threads: str, share: str) -> None:
        """Print what is trained where, on what, and for how long."""
        options, world, batches, schedule = self.options, self.world, self.batches, self.schedule
        processes = f"{world.size} processes{share}, each with " if world.size > 1 else ""
        print(f"device: {self.device}, {processes}{threads}")
        sizes = ", ".join(f"{n:,} {name}" for name, n in self.data.sizes.items())
        print(f"data: {options.DATASET or options.MODEL}, {sizes}")
        if options.LOG_MODEL_SUMMARY:
            print(wrapped(f"model: {summary(self.model)}"))
        tokens = self.tokens_per_sample
        of_tokens = f" of {tokens} tokens" if tokens else ""
        limit = f", at most {options.MAX_TIME:g} min" if options.MAX_TIME else ""
        plan = f"{schedule.num_steps:,} steps of {batches.batch_size} samples{of_tokens}{limit}"
        print(f"plan: {plan}, {options.OPTIMIZER}, {schedule.name}")
        if options.COMPILE:
            print("note: the model is compiled in its first step, which takes longer")
        note = few_validations(
            options.EVAL_INTERVAL or batches.steps_per_epoch,
            num_steps=schedule.num_steps,
            is_evaluated_first=bool(options.EVAL_FIRST),
        )
        if note:
            print(wrapped(f"note: {note}"))

    def parts(self) -> dict[str, Stateful]:
        """Return the parts that a checkpoint keeps; a new part of trainings is one more entry."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "pruning": self.pruner,
            "data": self.batches,
            "rng": Generators(
                self.options.SEED,
                rank=self.world.rank,
                collect=self.world.collected if self.world.size > 1 else None,
            ),
            "compute": Compute(self.device.torch, self.numerics, processes=self.world.size),
            "progress": self.progress,
            **({"average": self.average} if self.average is not None else {}),
            **{f"optimizer_{name}": optimizer for name, optimizer in self.apart.items()},
            **self.data_parts,
            **self.weights.parts(),
        }

    def trained_apart(self) -> set[nn.Parameter]:
        """The parameters of optimizers that step by losses of their own."""
        groups = [group for optimizer in self.apart.values() for group in optimizer.param_groups]
        return {parameter for group in groups for parameter in group["params"]}

    def counted(self) -> dict[str, int]:
        """`tokens_seen` of the end record, of a training that counts tokens."""
        batches, tokens = self.batches, self.tokens_per_sample
        seen = batches.epoch * batches.num_samples + batches.position * batches.batch_size
        return {"tokens_seen": seen * tokens} if tokens else {}

    def identity(self) -> dict[str, Any]:
        """Return what run.json has about an attempt, besides what it has about every run."""
        found = {
            name: {"value": value, "provenance": AUTO, "reason": reason}
            for name, (value, reason) in self.options.own_choices().items()
        }
        chosen = {"automatic": found} if found else {}
        return {"seed": self.options.SEED, **self.data_identity(), "device": str(self.device), **chosen}

    def data_identity(self) -> dict[str, str]:
        """Hashes of what is trained on, with which alone a run is resumed; text has that of its tokenizer."""
        tokenizer = getattr(self.data, "tokenizer_sha256", None)
        return {**({"tokenizer_sha256": tokenizer} if tokenizer else {}), "data_sha256": self.data.sha256}

    def seconds_left(self) -> float:
        """Seconds of MAX_TIME that earlier attempts have not used."""
        return max(0.0, 60 * float(self.options.MAX_TIME) - self.progress.clock.seconds)

    def plan(self) -> dict[str, Any]:
        """The start record's account of the training."""
        loss = getattr(self.data, "chance_loss", None)
        return {
            "num_steps": self.schedule.num_steps,
            "num_epochs": self.options.NUM_EPOCHS,
            "steps_per_epoch": self.batches.steps_per_epoch,
            **({"max_seconds": self.seconds_left()} if self.options.MAX_TIME else {}),
            "batch_size": self.options.BATCH_SIZE,
            **({"tokens_per_sample": self.tokens_per_sample} if self.tokens_per_sample else {}),
            **({"chance_loss": loss} if loss is not None else {}),
            "optimizer": self.optimizer_options,
            "schedule": self.schedule.described,
            "pruning": self.pruner.described,
            "dataset": {"name": self.options.DATASET, **self.data.sizes},
            "cpu_threads": torch.get_num_threads(),
            "world_size": self.world.size,
            "numerics": asdict(self.numerics),
            **self.identity(),
        }

    def described_model(self) -> dict[str, Any]:
        """Name, number of parameters, size in MB (1e6 bytes, as stored) and layers, for the start record."""
        stored = [*self.model.parameters(), *self.model.buffers()]
        return {
            "name": model_name(self.model),
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
            "size_mb": sum(tensor.numel() * tensor.element_size() for tensor in stored) / 1e6,
            "architecture": {name: str(layer) for name, layer in self.model.named_children()},
        }
