"""Statistics of the outputs of a model's layers, and of how spread its attention is, in some of its steps.

    activations = ActivationStatistics(model, every=100)
    for step, batch in enumerate(loader, 1):
        activations.begin_step(step)
        loss = train_on(batch)
        activations.end_step()
        run.log_step(step, train_loss=loss, **activations.measured)

Nothing waits for a device: the numbers are 0-dim tensors on it, which records take as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

ON_ATTENTION = "on_attention"
"""The attribute of an attention module that is None, or a function of its queries and keys that it calls."""


class ActivationStatistics:
    """Measures a model's layers in every `every`th step (0: in none), by hooks that are removed after it."""

    def __init__(self, model: nn.Module, *, every: int, pattern: str = "*") -> None:
        """`pattern` chooses linear layers, convolutions and blocks by name, as a shell does file names."""
        self.measured: dict[str, Tensor] = {}
        """`activation_mean/LAYER` and so on, of the latest step; empty if that was not measured.

        Of a layer's first call in the step: of one micro-batch, not of what is computed again in backward.
        """
        self._model, self._every, self._pattern = model, every, pattern
        self._undo: list[Callable[[], None]] = []

    def begin_step(self, step: int) -> None:
        """Register the hooks if this step (from 1) is to be measured."""
        if not self._every:
            return
        self.end_step()  # of a step that an exception ended
        self.measured = {}
        if step % self._every == 0:
            for name, layer in layers(self._model, self._pattern):
                self._undo.append(layer.register_forward_hook(self._hook(name)).remove)
            for name, module in self._model.named_modules():
                if ON_ATTENTION in vars(module) and fnmatchcase(name, self._pattern):
                    self._listen(name, module)

    def end_step(self) -> None:
        """Remove the hooks, which leaves the model as it was."""
        while self._undo:
            self._undo.pop()()

    def _hook(self, name: str) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, inputs: Any, output: Any) -> None:
            if f"activation_mean/{name}" not in self.measured:
                found = statistics(output)
                self.measured |= {f"activation_{key}/{name}": value for key, value in found.items()}

        return look

    def _listen(self, name: str, module: nn.Module) -> None:
        def look(queries: Tensor, keys: Tensor) -> None:
            if f"attention_entropy/{name}" not in self.measured:
                self.measured[f"attention_entropy/{name}"] = attention_entropy(queries, keys)

        setattr(module, ON_ATTENTION, look)
        self._undo.append(lambda: setattr(module, ON_ATTENTION, None))


def layers(model: nn.Module, pattern: str = "*") -> Iterator[tuple[str, nn.Module]]:
    """Linear layers, convolutions and blocks whose names the pattern fits, in the model's order.

    A block is a part of a ModuleList or Sequential that has parts of its own.
    """
    from torch import nn

    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            found[name] = module
        elif name:
            above = model.get_submodule(name.rpartition(".")[0])
            if isinstance(above, nn.ModuleList | nn.Sequential) and any(module.children()):
                found[name] = module
    return ((name, module) for name, module in found.items() if fnmatchcase(name, pattern))


def statistics(output: object) -> dict[str, Tensor]:
    """Mean, standard deviation (by n), largest absolute value and share of exact zeros, 0-dim and float32.

    Empty for what is no tensor of floating-point numbers, or has no element.
    """
    import torch

    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or not output.numel():
        return {}
    values = output.detach().float()
    std, mean = torch.std_mean(values, correction=0)
    return {
        "mean": mean,
        "std": std,
        "max_abs": torch.linalg.vector_norm(values, torch.inf),
        "zero_fraction": (values.numel() - torch.count_nonzero(values)) / values.numel(),
    }


def attention_entropy(queries: Tensor, keys: Tensor, *, is_causal: bool = True) -> Tensor:
    """Entropy in nats of the weights softmax(q k^T / sqrt(d)), the mean over samples, heads and queries.

    `queries` and `keys` are (n, heads, t, d). From 0, all on one key, to ln t, the same on all; with
    `is_causal` query i sees the keys up to its own, so that the largest is the mean of ln 1 to ln t. One
    sample after the other, for all scores at once may be larger than the model.
    """
    import torch

    means = []
    with torch.no_grad(), torch.autocast(queries.device.type, enabled=False):
        t = queries.shape[-2]
        hidden = torch.ones(t, t, dtype=torch.bool, device=queries.device).triu(1)
        for q, k in zip(queries.float(), keys.float(), strict=True):
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            if is_causal:
                scores = scores.masked_fill(hidden, -torch.inf)
            means.append(torch.special.entr(scores.softmax(-1)).sum(-1).mean())
        return torch.stack(means).mean()
