"""Record logits.json: what Hugging Face's GPT2LMHeadModel gives for weights that a formula makes.

Run in an environment that has transformers; the tests need only what it wrote:
python record.py > logits.json
"""

from __future__ import annotations

import json

import torch
import transformers


def made_weight(number: int, shape: torch.Size) -> torch.Tensor:
    """The same on every machine, without a generator, and other than that of any other number."""
    return torch.sin(torch.arange(shape.numel(), dtype=torch.float64) * 0.7 + number).mul(0.2).reshape(shape)


def main() -> None:
    config = transformers.GPT2Config(vocab_size=64, n_positions=12, n_embd=16, n_layer=2, n_head=4)
    model = transformers.GPT2LMHeadModel(config).double().eval()
    with torch.no_grad():
        for number, (_, weight) in enumerate(sorted(model.named_parameters())):
            weight.copy_(made_weight(number, weight.shape))
        tokens = torch.arange(24).mul(5).remainder(64).reshape(2, 12)
        logits = model(tokens).logits
    about = {"transformers": transformers.__version__, "torch": torch.__version__}
    names = sorted(name for name, _ in model.named_parameters())
    print(
        json.dumps(
            {**about, "parameters": names, "tokens": tokens.tolist(), "logits": logits[:, -1].tolist()}
        )
    )


if __name__ == "__main__":
    main()
