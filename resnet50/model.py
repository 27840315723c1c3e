"""ResNet-50 (He, Zhang, Ren, Sun 2016), in the variant that is usual today: v1.5.

As in torchvision's, the 3x3 convolution of a block that halves the field has the stride; in the paper it is
the first 1x1. Names, shapes and their order are torchvision's too, so state dicts go both ways.

    conv1, bn1       7x7, 64 maps, stride 2, and 3x3 pooling, stride 2; for small pictures 3x3, stride 1
    layer1..layer4   3, 4, 6 and 3 blocks of 1x1, 3x3, 1x1 with 64, 128, 256 and 512 maps, 4 times as many out
    fc               2,048 features, averaged over the field, to the classes

25,557,032 parameters for 1,000 classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from kharness.config.options import Options
from kharness.training.device import compile_model, uses_bf16

CITED = ("he2016",)

# A block gives so many times the maps of its 3x3 convolution.
EXPANSION = 4


def build_model(options: Options, *, classes: int, device: torch.device) -> nn.Module:
    """The model that the configuration describes, with its first weights, on the device."""
    model: nn.Module = ResNet(
        classes,
        blocks=options.RESNET50_BLOCKS,
        width=options.RESNET50_WIDTH,
        small=options.RESNET50_STEM == "small",
        zero_init=options.RESNET50_ZERO_INIT,
        bf16=uses_bf16(options.AMP, device),
    ).to(device)
    if options.CHANNELS_LAST:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
    if options.COMPILE:
        compile_model(model, options)
    return model


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut: (n, maps_in, h, w) to (n, 4 maps, h/s, w/s)."""

    def __init__(self, maps_in: int, maps: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(maps_in, maps, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(maps)
        self.conv2 = nn.Conv2d(maps, maps, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(maps)
        self.conv3 = nn.Conv2d(maps, EXPANSION * maps, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(EXPANSION * maps)
        self.downsample = _projection(maps_in, EXPANSION * maps, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return F.relu(self.bn3(self.conv3(x)).add_(shortcut), inplace=True)


class ResNet(nn.Module):
    """Logits (n, classes) for pictures (n, 3, height, width)."""

    def __init__(
        self,
        classes: int,
        *,
        blocks: Sequence[int] = (3, 4, 6, 3),
        width: int = 64,
        small: bool = False,
        zero_init: bool = True,
        bf16: bool = False,
    ) -> None:
        """`small` pictures, such as 32x32, are not halved before the first block.

        With `zero_init` the last gamma of each block is 0: it begins as its shortcut (Goyal et al. 2017).
        `bf16` computes convolutions in bfloat16; weights and logits are float32 in any case.
        """
        super().__init__()
        self.bf16 = bf16
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, padding=1)
        self.layer1 = _layer(width, width, blocks[0], stride=1)
        self.layer2 = _layer(EXPANSION * width, 2 * width, blocks[1], stride=2)
        self.layer3 = _layer(2 * EXPANSION * width, 4 * width, blocks[2], stride=2)
        self.layer4 = _layer(4 * EXPANSION * width, 8 * width, blocks[3], stride=2)
        self.fc = nn.Linear(8 * EXPANSION * width, classes)
        _initialize(self, zero_init=zero_init)

    def forward(self, pictures: Tensor) -> Tensor:
        with torch.autocast(pictures.device.type, torch.bfloat16, enabled=self.bf16):
            x = self.maxpool(F.relu(self.bn1(self.conv1(pictures)), inplace=True))
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            logits: Tensor = self.fc(x.mean((2, 3)))
        return logits.float()


def _layer(maps_in: int, maps: int, blocks: int, *, stride: int) -> nn.Sequential:
    """Blocks of which the first has the stride."""
    first = Bottleneck(maps_in, maps, stride=stride)
    rest = [Bottleneck(EXPANSION * maps, maps, stride=1) for _ in range(1, blocks)]
    return nn.Sequential(first, *rest)


def _projection(maps_in: int, maps: int, stride: int) -> nn.Sequential | None:
    """Return the projection of a shortcut if the block changes the shape, else None."""
    if stride == 1 and maps_in == maps:
        return None
    return nn.Sequential(nn.Conv2d(maps_in, maps, 1, stride, bias=False), nn.BatchNorm2d(maps))


def _initialize(model: nn.Module, *, zero_init: bool) -> None:
    """He et al. 2015 for convolutions; the rest as torch has it, but for the last gammas."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, Bottleneck) and zero_init:
            nn.init.zeros_(module.bn3.weight)
