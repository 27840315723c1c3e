"""GPT-2 (Radford, Wu, Child, Luan, Amodei, Sutskever 2019), the language model of OpenAI's release.

Token and position embeddings, layers of causal self-attention and a feed-forward network of four times the
width, each behind a LayerNorm (pre-norm), a last LayerNorm, and a head that is the token embedding itself.

    size     layers  heads  width    parameters with 50,257 tokens and 1,024 positions
    124M         12     12    768      124,439,808
    medium       24     16  1,024      354,823,168
    large        36     20  1,280      774,030,080
    XL           48     25  1,600    1,557,611,200
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.options import Options
from kharness.training.errors import TrainingError

# Rows of the embedding are padded to a multiple of this: matrix units of GPUs work in such tiles.
VOCABULARY_MULTIPLE = 64


@dataclass(frozen=True)
class Shape:
    """How large a GPT-2 is."""

    vocabulary: int
    """Tokens that there are; the embedding has a few rows more, of tokens that never occur."""
    block_size: int
    layers: int
    heads: int
    width: int
    dropout: float = 0.0

    @property
    def padded_vocabulary(self) -> int:
        """Rows of the embedding and logits of a prediction."""
        return math.ceil(self.vocabulary / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def build_model(options: Options, *, vocabulary: int) -> GPT2:
    """As GPT2_SIZE or its parts say, with first weights by torch's generator."""
    if options.GPT2_WIDTH % options.GPT2_HEADS:
        raise TrainingError(
            f"GPT2_WIDTH={options.GPT2_WIDTH} is no multiple of GPT2_HEADS={options.GPT2_HEADS}",
            hint="choose a width that the heads divide",
        )
    return GPT2(
        Shape(
            vocabulary=vocabulary,
            block_size=options.GPT2_BLOCK_SIZE,
            layers=options.GPT2_LAYERS,
            heads=options.GPT2_HEADS,
            width=options.GPT2_WIDTH,
            dropout=options.GPT2_DROPOUT,
        )
    )


class GPT2(nn.Module):
    """Logits (n, t, padded vocabulary) of the token after each of the tokens (n, t)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.wte = nn.Embedding(shape.padded_vocabulary, shape.width)
        self.wpe = nn.Embedding(shape.block_size, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.h = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.width)
        self.apply(_initialise)
        for block in self.h:  # the sum over all residual branches keeps its variance
            for branch in (block.attn.c_proj, block.mlp.c_proj):  # type: ignore[union-attr]
                nn.init.normal_(branch.weight, std=0.02 / math.sqrt(2 * shape.layers))  # type: ignore[union-attr, arg-type]

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class Block(nn.Module):
    """A layer: attention, then the feed-forward network, each added to the residual stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.width)
        self.mlp = FeedForward(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        out: Tensor = x + self.mlp(self.ln_2(x))
        return out


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.c_attn = nn.Linear(shape.width, 3 * shape.width)
        self.c_proj = nn.Linear(shape.width, shape.width)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        heads = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        out: Tensor = self.drop(self.c_proj(heads.transpose(1, 2).reshape(n, t, width)))
        return out


class FeedForward(nn.Module):
    """Two linear layers around GELU, in the approximation by tanh that GPT-2 was trained with."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.c_fc = nn.Linear(shape.width, 4 * shape.width)
        self.c_proj = nn.Linear(4 * shape.width, shape.width)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))
        return out


def _initialise(module: nn.Module) -> None:
    """As the released code: weights N(0, 0.02), biases 0 (Radford et al. 2018, section 4.1)."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear):
        nn.init.zeros_(module.bias)
