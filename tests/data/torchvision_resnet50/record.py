"""Records torchvision's ResNet-50; the README beside it says how."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch


def main() -> None:
    """Names and shapes of its state dict, and its logits from weights and pictures that a seed gives."""
    # The wheel's operators are built for CUDA and do not load beside a torch for CPUs; it asks for these two.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision  # type: ignore[import-not-found]  # no dependency: installed for this script alone

    model = torchvision.models.resnet50()
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    model.load_state_dict({name: weights_of(name, value) for name, value in model.state_dict().items()})
    found: dict[str, Any] = {
        "made with": f"torchvision {torchvision.__version__}, torch {torch.__version__}",
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "every 50th logit, evaluating": logits_of(model.eval()),
        "every 50th logit, training": logits_of(model.train()),
        "state dict": shapes,
    }
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in found.items())
    Path(__file__).with_name("recorded.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


def weights_of(name: str, like: torch.Tensor) -> torch.Tensor:
    """Values that only the name and the shape decide, of a size that keeps a deep model's numbers tame."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    if not like.is_floating_point():
        return torch.zeros_like(like)
    if like.ndim > 1:
        return torch.randn(like.shape, generator=generator).div_(math.sqrt(like[0].numel()))
    return 0.5 + torch.rand(like.shape, generator=generator)


@torch.inference_mode()
def logits_of(model: torch.nn.Module) -> list[list[float]]:
    """Every 50th of the logits of two pictures, 64 by 64."""
    pictures = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2016))
    found: list[list[float]] = model(pictures)[:, ::50].tolist()
    return found


if __name__ == "__main__":
    main()
