"""Measures the pace of a user's loop by its model's forward passes: Accelerate shows trackers no steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accelerate.state import AcceleratorState, GradientState

from monitoring.callbacks.throughput import Fields, Throughput, flops_of_token, samples_in, tokens_in

if TYPE_CHECKING:
    import torch

DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


class Forwards:
    """Counts samples and tokens that a model is given in training; time of evaluations does not count.

    A compiled model is not counted: nothing is measured then.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.is_on = False
        """Whether this process records, and a training has begun."""
        self._throughput: Throughput | None = None
        self._is_evaluated = False
        self._measured: Fields = {}
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def begin(self) -> None:
        """A training begins."""
        self.is_on, self._throughput, self._is_evaluated, self._measured = True, None, False, {}

    def read(self) -> Fields:
        """Return fields of a step record, of the steps since the last reading; empty before the first."""
        if self._is_evaluated:
            found, self._measured = self._measured, {}
            return found
        return self._throughput.read() if self._throughput is not None else {}

    def _count(self, model: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        import torch  # the model's own

        if not self.is_on or torch.compiler.is_compiling():
            return
        if not model.training:
            if self._throughput is not None and not self._is_evaluated:
                self._measured, self._is_evaluated = self._throughput.read(), True
            return
        if self._throughput is None:
            self._begin_to_measure(model)
        assert self._throughput is not None
        if self._is_evaluated:
            self._throughput.restart()
            self._is_evaluated = False
        batch = named if named else inputs
        tokens = tokens_in(batch) * self._processes
        self._throughput.add(tokens, float(self._of_token * tokens) if tokens else None)
        samples = samples_in(batch) * self._processes
        if GradientState().sync_gradients:
            self._throughput.step(samples)
        else:
            self._throughput.add_samples(samples)

    def _begin_to_measure(self, model: torch.nn.Module) -> None:
        import torch  # the model's own

        state = AcceleratorState()
        weights = list(model.parameters())
        counts = [(weight.numel(), weight.requires_grad) for weight in weights]
        self._of_token = flops_of_token(
            sum(count for count, _ in counts), sum(count for count, trained in counts if trained)
        )
        self._processes = int(state.num_processes)
        self._throughput = Throughput(
            weights[0].device if weights else torch.device("cpu"),
            dtype=DTYPES.get(str(state.mixed_precision), "float32"),
            num_devices=self._processes,
        )
