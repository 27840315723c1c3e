"""GPT-2 (Radford, Wu, Child, Luan, Amodei, Sutskever 2019), and what was found to be better since.

Token and position embeddings, layers of causal self-attention and a feed-forward network of four times the
width, each behind a LayerNorm (pre-norm), a last LayerNorm, and a head that is the token embedding itself.

    size     layers  heads  width    parameters with 50,257 tokens and 1,024 positions
    124M         12     12    768      124,439,808
    medium       24     16  1,024      354,823,168
    large        36     20  1,280      774,030,080
    XL           48     25  1,600    1,557,611,200

Weights, their gradients and the state of the optimizer are float32. With `bf16` the forward and backward
pass of linear layers and attention compute in bfloat16 (torch.autocast), on a CPU that of linear layers
alone; logits come out as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpt2.derivatives import bf16_product, mixed, rms_norm, squared_relu, turned
from kharness.config.options import Options
from kharness.training.device import compile_model, uses_bf16
from kharness.training.errors import TrainingError

CITED = ("radford2019",)

# Rows of the embedding are padded to a multiple of this: matrix units of GPUs work in such tiles.
VOCABULARY_MULTIPLE = 64


@dataclass(frozen=True)
class Shape:
    """How large a GPT-2 is, and in what it differs from the published one."""

    vocabulary: int
    """Tokens that there are; the embedding has a few rows more, of tokens that never occur."""
    block_size: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0
    bias: bool = True
    """In linear layers and norms."""
    rotary: bool = False
    """Queries and keys turned by their position, in place of position embeddings (Su et al. 2021)."""
    qk_norm: bool = False
    """Queries and keys of length 1 but for a common factor (Henry et al. 2020)."""
    squared_relu: bool = False
    """In place of GELU (So et al. 2021)."""
    rms_norm: bool = False
    """Norms that divide by the root of the mean square and have no weights (Zhang and Sennrich 2019)."""
    zero_init: bool = False
    """Output projections, and an untied head, begin as zeros (Zhang et al. 2019)."""
    tied: bool = True
    """The head is the token embedding (Press and Wolf 2017)."""
    value_embeddings: bool = False
    """Every second layer adds an embedding of the token to its values (Zhou et al. 2024)."""
    shortcuts: bool = False
    """Each layer begins with a learned mixture of the stream and the embeddings (Jordan et al. 2024)."""
    softcap: float = 0.0
    """Logits are kept below it by tanh (Gemma 2, Riviere et al. 2024); 0 leaves them as they are."""
    bf16: bool = False

    @property
    def padded_vocabulary(self) -> int:
        """Rows of the embedding and logits of a prediction."""
        return math.ceil(self.vocabulary / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def build_model(options: Options, *, vocabulary: int, device: torch.device) -> GPT2:
    """Build the model that the GPT2_… options describe, initialized with torch's generator."""
    multiple = options.GPT2_HEADS * (2 if options.GPT2_ROTARY else 1)
    if options.GPT2_WIDTH % multiple:
        raise TrainingError(
            f"GPT2_WIDTH={options.GPT2_WIDTH} is not a multiple of {multiple} "
            f"(GPT2_HEADS={options.GPT2_HEADS})",
            hint="choose a width that the heads divide, with GPT2_ROTARY=y into even parts",
        )
    shape = Shape(
        vocabulary=vocabulary,
        block_size=options.GPT2_BLOCK_SIZE,
        layers=options.GPT2_LAYERS,
        heads=options.GPT2_HEADS,
        width=options.GPT2_WIDTH,
        dropout=options.GPT2_DROPOUT,
        bias=options.GPT2_BIAS,
        rotary=options.GPT2_ROTARY,
        qk_norm=options.GPT2_QK_NORM,
        squared_relu=options.GPT2_SQUARED_RELU,
        rms_norm=options.GPT2_RMS_NORM,
        zero_init=options.GPT2_ZERO_INIT,
        tied=options.GPT2_TIED,
        value_embeddings=options.GPT2_VALUE_EMBEDDINGS,
        shortcuts=options.GPT2_SHORTCUTS,
        softcap=options.GPT2_SOFTCAP,
        bf16=uses_bf16(options.AMP, device),
    )
    model = GPT2(shape)
    if options.PARALLEL == "ddp":  # else the training moves this process's part of it
        model.to(device)
    if options.COMPILE:
        # Processes that share the model gather the weights of a layer right before it: outside of its graph.
        for part in [model] if options.PARALLEL == "ddp" else model.h:
            compile_model(part, options)
    return model


class GPT2(nn.Module):
    """Logits (n, t, padded vocabulary), float32, of the token after each of the tokens (n, t)."""

    turns: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.wte = nn.Embedding(shape.padded_vocabulary, shape.width)
        if not shape.rotary:
            self.wpe = nn.Embedding(shape.block_size, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.h = nn.ModuleList(Block(shape, number) for number in range(shape.layers))
        self.ln_f = norm(shape)
        # A layer of its own also where it is tied: Muon knows heads by such names.
        self.lm_head = Linear(shape.width, shape.padded_vocabulary, bias=False, bf16=shape.bf16)
        if shape.tied:
            self.lm_head.weight = self.wte.weight
        if shape.rotary:
            self.register_buffer("turns", rotations(shape), persistent=False)
        self._initialize()

    def forward(self, tokens: Tensor) -> Tensor:
        autocast = self.shape.bf16 and not in_linear_layers_alone(tokens)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=autocast):
            x = self.wte(tokens)
            if self.shape.rotary:
                turns = self.turns[:, : tokens.shape[1]]
            else:
                x, turns = x + self.wpe(torch.arange(tokens.shape[1], device=tokens.device)), None
            x = first = self.drop(rms_norm(x) if self.shape.rms_norm else x)
            for block in self.h:
                x = block(x, first, tokens, turns)
            logits: Tensor = self.lm_head(self.ln_f(x)).float()
        return self.shape.softcap * torch.tanh(logits / self.shape.softcap) if self.shape.softcap else logits

    @torch.no_grad()
    def _initialize(self) -> None:
        """Weights N(0, 0.02), biases 0, output projections less, the deeper it is (Radford et al. 2019)."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for name, weight in self.named_parameters():
            if name.endswith("c_proj.weight"):  # the sum over all residual branches keeps its variance
                weight.normal_(std=0.02 / math.sqrt(2 * self.shape.layers))
                if self.shape.zero_init:
                    weight.zero_()
        if self.shape.zero_init and not self.shape.tied:
            self.lm_head.weight.zero_()


class Block(nn.Module):
    """A layer: attention, then the feed-forward network, each added to the residual stream (n, t, width)."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self.ln_1 = norm(shape)
        self.attn = Attention(shape, number)
        self.ln_2 = norm(shape)
        self.mlp = FeedForward(shape)
        self.mixture = nn.Parameter(torch.tensor([1.0, 0.0])) if shape.shortcuts else None

    def forward(self, x: Tensor, first: Tensor, tokens: Tensor, turns: Tensor | None) -> Tensor:
        if self.mixture is not None:
            x = mixed(x, first, self.mixture)
        x = x + self.attn(self.ln_1(x), tokens, turns)
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        self.heads, self.dropout, self.qk_norm = shape.heads, shape.dropout, shape.qk_norm
        self.c_attn = Linear(shape.width, 3 * shape.width, bias=shape.bias, bf16=shape.bf16)
        self.c_proj = Linear(shape.width, shape.width, bias=shape.bias, bf16=shape.bf16)
        self.drop = nn.Dropout(shape.dropout)
        self.values = None
        if shape.value_embeddings and number % 2 == 0:
            self.values = nn.Embedding(shape.padded_vocabulary, shape.width)
        self.on_attention: Callable[[Tensor, Tensor], None] | None = None
        """Called with queries and keys (n, heads, t, head): fused attention does not return its weights."""

    def forward(self, x: Tensor, tokens: Tensor, turns: Tensor | None) -> Tensor:
        n, t, width = x.shape
        qk, v = self.c_attn(x).split([2 * width, width], -1)
        if self.values is not None:
            v = v + self.values(tokens).to(v.dtype)
        v = v.view(n, t, self.heads, -1).transpose(1, 2)
        qk = qk.view(n, t, 2 * self.heads, -1).transpose(1, 2)
        if self.qk_norm:
            qk = rms_norm(qk)
        if turns is not None:
            qk = turned(qk, turns)
        q, k = qk.chunk(2, 1)
        if self.on_attention is not None:
            self.on_attention(q, k)
        dropout = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        out: Tensor = self.drop(self.c_proj(heads.transpose(1, 2).reshape(n, t, width)))
        return out


class FeedForward(nn.Module):
    """Two linear layers around GELU, in the approximation by tanh that GPT-2 was trained with."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.squared_relu = shape.squared_relu
        self.c_fc = Linear(shape.width, 4 * shape.width, bias=shape.bias, bf16=shape.bf16)
        self.c_proj = Linear(4 * shape.width, shape.width, bias=shape.bias, bf16=shape.bf16)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.c_fc(x)
        x = squared_relu(x) if self.squared_relu else F.gelu(x, approximate="tanh")
        out: Tensor = self.drop(self.c_proj(x))
        return out


class Linear(nn.Linear):
    """With `bf16` on a CPU its products are computed in bfloat16."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool, bf16: bool) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.bf16 = bf16

    def forward(self, x: Tensor) -> Tensor:
        if not (self.bf16 and in_linear_layers_alone(x)):
            return super().forward(x)
        product = bf16_product(x, self.weight)
        return product if self.bias is None else product + self.bias


def in_linear_layers_alone(x: Tensor) -> bool:
    """Where `bf16` does without torch.autocast: on a CPU, unless torch.compile fuses what is between them."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class PlainNorm(nn.Module):
    """Divides by the root of the mean square."""

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x)


def norm(shape: Shape) -> nn.Module:
    """Over the width."""
    if shape.rms_norm:
        return PlainNorm()
    return nn.LayerNorm(shape.width, bias=shape.bias)


def rotations(shape: Shape) -> Tensor:
    """Cosines and sines (2, block size, half of a head) of positions times falling frequencies."""
    half = shape.width // shape.heads // 2
    frequencies = 10_000.0 ** -(torch.arange(half) / half)
    angles = torch.arange(shape.block_size).unsqueeze(1) * frequencies
    return torch.stack([angles.cos(), angles.sin()])
