"""Sample text from a model, token by token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from gpt2.data import TextSplits
from kharness.config.options import Options


def sample_text(model: nn.Module, splits: TextSplits, options: Options) -> list[str]:
    """GPT2_SAMPLE_TOKENS that continue GPT2_SAMPLE_PROMPT, as text; no text where that is 0.

    Without a prompt the first token of the validation text is continued. The generator is one of its own, so
    that the same weights write the same text. A model that is compiled runs as it was written: it would be
    compiled twice more, for texts that grow.
    """
    if not options.GPT2_SAMPLE_TOKENS:
        return []
    tokenizer = splits.open_tokenizer()
    device = next(model.parameters()).device
    tokens = splits.validation.batch(torch.zeros(1, dtype=torch.int64))[0][:, :1]
    if options.GPT2_SAMPLE_PROMPT:
        prompt = torch.from_numpy(tokenizer.encode(options.GPT2_SAMPLE_PROMPT).astype("int64"))
        tokens = prompt.unsqueeze(0).to(device)
    with torch.compiler.set_stance("force_eager"):
        tokens = continued(
            model,
            tokens,
            count=options.GPT2_SAMPLE_TOKENS,
            block_size=options.GPT2_BLOCK_SIZE,
            vocabulary=splits.vocabulary,
            temperature=options.GPT2_SAMPLE_TEMPERATURE,
            top_k=options.GPT2_SAMPLE_TOP_K,
            seed=options.GPT2_SAMPLE_SEED,
        )
    return [tokenizer.decode(row) for row in tokens.tolist()]


@torch.inference_mode()
def continued(
    model: nn.Module,
    tokens: Tensor,
    *,
    count: int,
    block_size: int,
    vocabulary: int,
    temperature: float,
    top_k: int,
    seed: int,
) -> Tensor:
    """The tokens (n, t) and `count` more, each drawn from the `top_k` likeliest (0: from all).

    Temperature 0 takes the likeliest. Rows of the embedding beyond the vocabulary are never drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    model.eval()
    for _ in range(count):
        logits = model(tokens[:, -block_size:])[:, -1, :vocabulary].cpu()
        if temperature == 0:
            drawn = logits.argmax(-1, keepdim=True)
        else:
            if 0 < top_k < vocabulary:
                logits[logits < logits.topk(top_k).values[:, -1:]] = -torch.inf
            drawn = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        tokens = torch.cat([tokens, drawn.to(tokens.device)], dim=1)
    model.train()
    return tokens
