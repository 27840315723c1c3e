"""Muon: Jordan et al. 2024 (Muon: An optimizer for hidden layers in neural networks), AdamW for the rest.

Taken: torch.optim.Muon for the hidden matrices, torch.optim.AdamW for everything else: embeddings, the first
convolution, the last linear layer, biases, norms, scalars. The weight of a convolution is the matrix (output
channels, all else), as Jordan has it (github.com/KellerJordan/Muon, muon_update). On a CPU, with
convolutions, and where ranks share the model, the step of the hidden matrices is `BatchedMuon`'s.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kharness.training.errors import TrainingError
from kharness.training.optimizers import parameter_groups
from kharness.training.optimizers._together import Together
from kharness.training.saving.sharded import full, is_sharded, part_from

CITED = ("jordan2024", "loshchilov2019")

_CONVOLUTIONS = nn.modules.conv._ConvNd
HEADS = re.compile(r"fc|(\w+\.)?((\w+_)?heads?(\.\w+)?|classifier|score|unembed)")
"""Names of linear layers that make the output: `lm_head`, `aux_heads.0`, torchvision's `fc`."""
EMBEDDINGS = re.compile(r"(\w+_)?(embed\w*|wte|wpe|token|tokens)(_\w+)?")
"""Names of tables that a model holds as parameters, not as nn.Embedding: `pos_embed`, `cls_token`."""
_MATRIX = torch.zeros(1, 1)


@dataclass(frozen=True)
class Options:
    """Hyperparameters of Muon."""

    learning_rate: float
    """Peak learning rate of the hidden matrices; the schedule moves both rates alike."""
    momentum: float
    nesterov: bool
    match_adamw: bool
    """Scale updates to the size of AdamW's, by 0.2 sqrt(larger dimension), not by sqrt(rows / columns)."""
    adamw_rate: float
    """Peak learning rate of everything else."""
    adamw_betas: tuple[float, float]
    """Decay of the first and of the second moment."""
    adamw_eps: float
    bf16: bool
    """Orthogonalize in bfloat16 on a CPU too, as the authors do; on a GPU it always is."""
    weight_decay: float
    """Times the learning rate and the weight, subtracted from the weight (decoupled)."""


def build(model: nn.Module, options: Options) -> torch.optim.Optimizer:
    """torch's Muon and torch's AdamW, its fused kernel, as one; TrainingError where Muon has no matrix."""
    hidden = hidden_matrices(model)
    if not hidden:
        raise TrainingError(
            "OPTIMIZER=muon: the model has no hidden matrices, so LEARNING_RATE would have no effect",
            hint="choose OPTIMIZER=adamw, which would train all of it",
        )
    parts: list[torch.optim.Optimizer] = []
    groups = parameter_groups(model, options.weight_decay)
    matrices = _only(groups, lambda weight: weight in hidden)
    if matrices:
        parts.append(
            BatchedMuon(
                matrices,
                lr=options.learning_rate,
                momentum=options.momentum,
                nesterov=options.nesterov,
                adjust_lr_fn="match_rms_adamw" if options.match_adamw else "original",
                bf16=options.bf16,
            )
        )
    rest = _only(groups, lambda weight: weight not in hidden)
    if rest:
        part = torch.optim.AdamW(
            rest, lr=options.adamw_rate, betas=options.adamw_betas, eps=options.adamw_eps, fused=True
        )
        for group in part.param_groups:
            # The schedule has one rate, LEARNING_RATE's; these groups follow it at their own height.
            group["rate_scale"] = options.adamw_rate / options.learning_rate
        parts.append(part)
    return Together(parts)


def hidden_matrices(model: nn.Module) -> set[nn.Parameter]:
    """The weights that Muon trains: matrices and convolutions between the model's first and its last layer.

    All but embeddings (layers, or parameters named like EMBEDDINGS), the first convolution, the heads, tied
    or not, and convolutions of several groups, whose filters are no rows of one matrix. The heads are the
    layers whose names are in the model's `output_layers`; of a model that has no such attribute those of a
    usual name (HEADS), and its last linear layer.
    """
    layers = list(model.modules())
    linear = heads_of(model)
    convolutions = [layer for layer in layers if isinstance(layer, _CONVOLUTIONS)]
    embeddings = [layer for layer in layers if isinstance(layer, nn.Embedding | nn.EmbeddingBag)]
    grouped = [layer for layer in convolutions if layer.groups > 1]
    outside: list[nn.Module] = [*embeddings, *linear, *convolutions[:1], *grouped]
    excluded = {parameter for layer in outside for parameter in layer.parameters()}
    own = (
        named for layer in layers if not isinstance(layer, nn.Linear) for named in layer._parameters.items()
    )
    excluded |= {parameter for name, parameter in own if parameter is not None and EMBEDDINGS.fullmatch(name)}
    filters = {parameter for layer in convolutions for parameter in layer.parameters() if parameter.ndim > 2}
    return (filters | {parameter for parameter in model.parameters() if parameter.ndim == 2}) - excluded


def heads_of(model: nn.Module) -> list[nn.Module]:
    """The layers that make the model's output; TrainingError where `output_layers` names one it has not."""
    named = dict(model.named_modules())
    if (own := getattr(model, "output_layers", None)) is not None:
        if unknown := [name for name in own if name not in named]:
            raise TrainingError(
                f"OPTIMIZER=muon: output_layers names {unknown[0]!r}, which {type(model).__name__} has not",
                hint=f"its layers: {', '.join(name for name, _ in model.named_children())}",
            )
        return [named[name] for name in own]
    linear = {name: layer for name, layer in named.items() if isinstance(layer, nn.Linear)}
    usual = [layer for name, layer in linear.items() if HEADS.fullmatch(name)]
    return [*usual, *list(linear.values())[-1:]]


class BatchedMuon(torch.optim.Muon):
    """torch's Muon, whose groups and state it has; matrices of one size take their step at once on a CPU.

    There the orthogonalization computes in float32 (float64 for such weights), unless `bf16` has it compute
    in bfloat16 as torch's does. Of a model that ranks share it needs complete matrices, which each rank
    orthogonalizes a share of; momentum stays in parts.
    """

    def __init__(self, params: Any, *, bf16: bool = False, **options: Any) -> None:
        """`options` are torch's, parameters or groups too, in which weights of convolutions may be."""
        # Its own check takes matrices alone.
        torch.optim.Optimizer.__init__(self, params, torch.optim.Muon([_MATRIX], **options).defaults)
        self._bf16 = bf16

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # a training has none
        """One step; torch's Muon takes that of matrices on a GPU."""
        weights = [weight for group in self.param_groups for weight in group["params"]]
        is_plain = all(weight.ndim == 2 and not is_sharded(weight) for weight in weights)
        if is_plain and not all(map(_is_ordinary, weights)):
            super().step()  # type: ignore[no-untyped-call]  # torch has no types there
            return
        for group in self.param_groups:
            self._step(group, [weight for weight in group["params"] if weight.grad is not None])

    def _step(self, group: dict[str, Any], weights: list[nn.Parameter]) -> None:
        rate, same_shape = float(group["lr"]), defaultdict(list)
        for weight in weights:
            same_shape[as_matrix(weight).shape].append(weight)
        directions = self._shared_directions if any(map(is_sharded, weights)) else self._directions
        for weight, direction in directions(group, list(same_shape.values())):
            rows, columns = as_matrix(weight).shape
            matched = group["adjust_lr_fn"] == "match_rms_adamw"
            # Liu et al. 2025 (arXiv 2502.16982, section 2.2): the root mean square of AdamW's updates is 0.2
            # to 0.4, that of an orthogonal matrix 1 / sqrt(larger dimension). Else as Jordan et al. 2024
            # scale it.
            scale = 0.2 * max(rows, columns) ** 0.5 if matched else max(1.0, rows / columns) ** 0.5
            weight.mul_(1 - rate * group["weight_decay"])
            weight.add_(direction if weight.ndim == 2 else direction.view(weight.shape), alpha=-rate * scale)

    def _directions(
        self, group: dict[str, Any], same_shape: list[list[nn.Parameter]]
    ) -> Iterator[tuple[nn.Parameter, Tensor]]:
        found = self._orthogonalized(
            group, [torch.stack([self._update(group, weight) for weight in alike]) for alike in same_shape]
        )
        for alike, directions in zip(same_shape, found, strict=True):
            yield from zip(alike, directions, strict=True)

    def _shared_directions(
        self, group: dict[str, Any], same_shape: list[list[nn.Parameter]]
    ) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Orthogonalize one matrix on each rank, for as many matrices as ranks, and send out its rows.

        Those of one size are beside each other, so that ranks take equally long. Besides its own a rank has
        one complete matrix at a time.
        """
        weights: list[Any] = [weight for alike in same_shape for weight in alike]
        mesh = weights[0].device_mesh
        for first in range(0, len(weights), mesh.size()):
            some, own = weights[first : first + mesh.size()], None
            for owner, weight in enumerate(some):
                update = full(self._update(group, weight))
                own = update if owner == mesh.get_local_rank() else own
            if own is not None:  # not before the others have theirs, who would wait
                [[own]] = self._orthogonalized(group, [own[None]])
            for owner, weight in enumerate(some):
                yield weight, part_from(owner, own if owner == mesh.get_local_rank() else None, weight)

    def _orthogonalized(self, group: dict[str, Any], updates: Sequence[Tensor]) -> list[Tensor]:
        in_bf16 = self._bf16 or any(update.is_cuda for update in updates)  # as torch's does
        return (orthogonalized_in_bf16 if in_bf16 else orthogonalized)(
            updates, coefficients=group["ns_coefficients"], steps=group["ns_steps"], eps=group["eps"]
        )

    def _update(self, group: dict[str, Any], weight: nn.Parameter) -> Tensor:
        """The momentum, or what Nesterov makes of it, as a matrix; kept in the state under torch's name."""
        gradient, state = weight.grad, self.state[weight]
        assert gradient is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        # a moving average, as torch's Muon has it, where SGD's momentum is a sum; of its size nothing is left
        # anyway
        momentum: Tensor = state["momentum_buffer"].lerp_(gradient, 1 - group["momentum"])
        return as_matrix(gradient.lerp(momentum, group["momentum"]) if group["nesterov"] else momentum)


def as_matrix(weight: Tensor) -> Tensor:
    """(output channels, all else) of a convolution; a matrix as it is."""
    return weight if weight.ndim == 2 else weight.flatten(1)


def _is_ordinary(weight: Tensor) -> bool:
    return weight.device.type == "cpu" and type(weight) is nn.Parameter


def orthogonalized(
    updates: Sequence[Tensor], *, coefficients: tuple[float, float, float], steps: int, eps: float
) -> list[Tensor]:
    """Matrices (n, rows, columns) with their singular values, divided by their norm, moved toward 1.

    Each step of Newton-Schulz takes X to p(X X^T) X, where p(G) = a + b G + c G^2. All p commute with X X^T,
    so their product is computed from the small square matrices alone: for four times as many columns as rows,
    5 steps are 50 products of rows^3 in place of 90.
    """
    wide = [one.mT if one.shape[1] > one.shape[2] else one for one in updates]
    wide = [one.to(torch.promote_types(one.dtype, torch.float32)) for one in wide]
    wide = [one / torch.linalg.matrix_norm(one, keepdim=True).clamp_min(eps) for one in wide]
    of_size = defaultdict(list)
    for number, one in enumerate(wide):
        of_size[one.shape[1], one.dtype].append(number)
    moved = list(wide)
    for numbers in of_size.values():  # products of few small squares take twice the time that they do of many
        grams = [wide[number] @ wide[number].mT for number in numbers]
        products = _product(torch.cat(grams), coefficients, steps).split([len(gram) for gram in grams])
        for number, product in zip(numbers, products, strict=True):
            moved[number] = product @ wide[number]
    return [new.mT if old.shape[1] > old.shape[2] else new for new, old in zip(moved, updates, strict=True)]


def orthogonalized_in_bf16(
    updates: Sequence[Tensor], *, coefficients: tuple[float, float, float], steps: int, eps: float
) -> list[Tensor]:
    """The same in bfloat16, step by step: a product of all p would lose the small singular values there."""
    a, b, c = coefficients
    moved = []
    for one in updates:
        wide = one.mT if one.shape[1] > one.shape[2] else one
        x = (wide / torch.linalg.matrix_norm(wide, keepdim=True).clamp_min(eps)).bfloat16()
        for _ in range(steps):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        moved.append((x.mT if one.shape[1] > one.shape[2] else x).to(one.dtype))
    return moved


def _product(gram: Tensor, coefficients: tuple[float, float, float], steps: int) -> Tensor:
    """Return the product of the polynomials of all steps, at least one, for squares (n, rows, rows)."""
    product = factor = _factor(gram, *coefficients)
    for _ in range(steps - 1):
        # X of the next step is p(G) X, so its X X^T is p(G) G p(G): p(G) is symmetric
        gram = factor @ gram @ factor
        factor = _factor(gram, *coefficients)
        product = factor @ product
    return product


def _factor(gram: Tensor, a: float, b: float, c: float) -> Tensor:
    factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
    factor.diagonal(dim1=1, dim2=2).add_(a)
    return factor


def _only(groups: list[dict[str, Any]], belongs: Callable[[Tensor], bool]) -> list[dict[str, Any]]:
    """The groups with the parameters that belong, without those that become empty."""
    kept = [{**group, "params": [one for one in group["params"] if belongs(one)]} for group in groups]
    return [group for group in kept if group["params"]]
