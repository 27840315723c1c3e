"""CPU time of a step of GPT-2's modern recipe: gpt2/train.py's beside a plain loop of the same maths, paired.

The plain loop writes the recipe down as its sources do, out of torch's own operations, with the steps of
torch.optim.Muon for the hidden matrices and torch's fused AdamW for the rest, and does nothing else. Ours
records loss, gradient norm and times of every step in the journal. Both compute in float32, so the step of
torch's Muon, which orthogonalizes in bfloat16, is written down as well; a loop with torch's own is beside.
Both clip the gradient's norm and begin with the same weights; first logits and Muon's steps are compared.
"""

from __future__ import annotations

import contextlib
import copy
import io
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.options import begin_script
from kharness.training.opening import open_training

ROOT = begin_script(str(Path(__file__).parent.parent / "gpt2/train.py"), __file__, about="")
BATCH, BLOCK, LAYERS, HEADS, WIDTH, PAIRS, WARM_UP = 12, 64, 4, 4, 128, 20, 3

Step = Callable[[], float]


class PlainLayer(nn.Module):
    """Attention and feed-forward network of the modern recipe."""

    def __init__(self, *, vocabulary: int, has_values: bool) -> None:
        super().__init__()
        self.mixture = nn.Parameter(torch.tensor([1.0, 0.0]))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.values = nn.Embedding(vocabulary, WIDTH) if has_values else None
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, first: Tensor, tokens: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = self.mixture[0] * x + self.mixture[1] * first
        q, k, v = self.qkv(F.rms_norm(x, (WIDTH,))).chunk(3, -1)
        if self.values is not None:
            v = v + self.values(tokens)
        q, k, v = (part.view(*tokens.shape, HEADS, -1).transpose(1, 2) for part in (q, k, v))
        q, k = (plainly_turned(F.rms_norm(part, (WIDTH // HEADS,)), cos, sin) for part in (q, k))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape))
        deeper: Tensor = x + self.down(F.relu(self.up(F.rms_norm(x, (WIDTH,)))).square())
        return deeper


def plainly_turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos + second * sin, second * cos - first * sin], -1)


class PlainModel(nn.Module):
    """Logits of the modern recipe, with the parameters of gpt2.model.GPT2 in the same order."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(
            PlainLayer(vocabulary=vocabulary, has_values=number % 2 == 0) for number in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        half = WIDTH // HEADS // 2
        angles = torch.arange(BLOCK).unsqueeze(1) * 10_000.0 ** -(torch.arange(half) / half)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens: Tensor) -> Tensor:
        x = first = F.rms_norm(self.embedding(tokens), (WIDTH,))
        for layer in self.layers:
            x = layer(x, first, tokens, self.cos, self.sin)
        return 15 * torch.tanh(self.head(F.rms_norm(x, (WIDTH,))) / 15)


class PlainMuon(torch.optim.Muon):
    """The step of torch's Muon, matrix by matrix, in the weights' own type."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no loop here has a closure
        for group in self.param_groups:
            for weight in group["params"]:
                state, gradient = self.state[weight], weight.grad
                momentum = state.setdefault("momentum_buffer", torch.zeros_like(weight))
                momentum.lerp_(gradient, 1 - group["momentum"])
                x = gradient.lerp(momentum, group["momentum"])
                x = x.T if x.shape[0] > x.shape[1] else x
                x = x / x.norm().clamp(min=group["eps"])
                a, b, c = group["ns_coefficients"]
                for _ in range(group["ns_steps"]):
                    gram = x @ x.T
                    x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
                x = x.T if weight.shape[0] > weight.shape[1] else x
                scale = max(1, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(x, alpha=-group["lr"] * scale)


def plain_loop(start: nn.Module, vocabulary: int, *, muon: type[torch.optim.Muon]) -> Step:
    """The loop of a minimal script, on tokens of noise."""
    model = PlainModel(vocabulary)
    compare(model, start, vocabulary)
    copy_weights(model, start)
    hidden = [
        weight
        for name, weight in model.layers.named_parameters()
        if ".weight" in name and "values" not in name
    ]
    rest = [weight for weight in model.parameters() if all(weight is not one for one in hidden)]
    optimizers = [
        muon(hidden, lr=0.03, weight_decay=0),
        torch.optim.AdamW(rest, lr=0.01, weight_decay=0, fused=True),
    ]
    text = torch.randint(65, (100_000,))

    def step() -> float:
        starts = torch.randint(len(text) - BLOCK - 1, (BATCH,)).tolist()
        tokens = torch.stack([text[one : one + BLOCK] for one in starts])
        targets = torch.stack([text[one + 1 : one + BLOCK + 1] for one in starts])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()

    return step


@torch.no_grad()
def compare(plain: nn.Module, ours: nn.Module, vocabulary: int) -> None:
    """AssertionError where both models are not the same function, for weights of noise."""
    noisy = copy.deepcopy(ours)
    for weight in noisy.parameters():
        weight.add_(torch.randn_like(weight), alpha=0.1)
    copy_weights(plain, noisy)
    tokens = torch.randint(vocabulary, (2, BLOCK))
    torch.testing.assert_close(plain(tokens), noisy(tokens), rtol=1e-4, atol=1e-4)


def compare_muon() -> None:
    """AssertionError where the plain step is not torch's, but for what bfloat16 rounds."""
    for shape in ((64, 32), (32, 96)):
        start, gradient = torch.randn(shape), torch.randn(shape)
        weights = [nn.Parameter(start.clone()) for _ in range(2)]
        for weight, kind in zip(weights, (torch.optim.Muon, PlainMuon), strict=True):
            weight.grad = gradient.clone()
            kind([weight], lr=0.1).step()
        torch.testing.assert_close(*weights, rtol=0, atol=0.01)


@torch.no_grad()
def copy_weights(to: nn.Module, source: nn.Module) -> None:
    """Parameter by parameter; both have the same order."""
    for own, weight in zip(to.parameters(), source.parameters(), strict=True):
        own.copy_(weight)


@contextlib.contextmanager
def our_loop(folder: Path) -> Iterator[tuple[Step, nn.Module]]:
    """The steps of gpt2/train.py on the interpreter's help topics, and its model."""
    from gpt2.train import cross_entropy, prepare

    flags = ["--device", "cpu", "--num-threads", "1", "--tracker", "none", "--optimizer", "muon"]
    flags += ["--gpt2-recipe", "modern", "--gpt2-size", "char", "--batch-size", str(BATCH)]
    flags += ["--learning-rate", "0.03", "--optimizer-muon-adamw-rate", "0.01", "--weight-decay", "0"]
    flags += ["--max-steps", "1000", "--checkpoint-every", "0", "--no-eval-first", "--run-dir", str(folder)]
    opened = open_training(flags, root=ROOT, model="gpt2", about="", prepare=prepare)
    said = contextlib.redirect_stdout(io.StringIO())
    with said, contextlib.suppress(KeyboardInterrupt), opened as training:
        steps = training.steps()

        def step() -> float:
            for part, share in training.micro_batches(next(steps)):
                tokens, targets = training.batch(training.data.train, part)
                loss = cross_entropy(training.model(tokens), targets)
                training.accumulate(loss, share=share)
            training.update(clip_norm=1.0)
            return loss.item()

        yield step, training.model
        raise KeyboardInterrupt  # it ends here, long before its last step


def main() -> int:
    """Print the medians and the median ratio of the pairs."""
    torch.set_num_threads(1)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        our_loop(Path(folder, "run")) as (ours, model),
    ):
        compare_muon()
        vocabulary = model.get_parameter("wte.weight").shape[0]
        seconds = timed(
            {
                "plain loop": plain_loop(model, vocabulary, muon=PlainMuon),
                "with torch's Muon": plain_loop(model, vocabulary, muon=torch.optim.Muon),
                "gpt2/train.py": ours,
            }
        )
    print(f"step of {BATCH} x {BLOCK} tokens, 1 thread, {PAIRS} pairs, torch {torch.__version__}")
    usual = seconds["plain loop"]
    for name, values in seconds.items():
        ratios = sorted(own / other for own, other in zip(values, usual, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name:18} {1000 * statistics.median(values):6.1f} ms CPU  ratio {ratio}")
    return 0


def timed(steps: dict[str, Step]) -> dict[str, list[float]]:
    """CPU time of each, in turns; the first ones of each warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(WARM_UP + PAIRS):
        for name, step in steps.items():
            begun = time.process_time()
            step()
            if number >= WARM_UP:
                seconds[name].append(time.process_time() - begun)
    return seconds


if __name__ == "__main__":
    sys.exit(main())
