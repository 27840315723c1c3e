"""LeNet-5 (LeCun, Bottou, Bengio, Haffner 1998), in the variant that is usual today.

As in the paper: 5x5 convolutions with 6 and 16 maps on a 32x32 field (28x28 and a border of 2), each followed
by 2x2 pooling, then layers of 120, 84 and 10. Other than in the paper: ReLU for the scaled tanh, max pooling
for the trainable average, every map of the second convolution sees all six (the paper's table I leaves some
out), and a linear output with cross-entropy for the radial basis functions.

    conv1   6 x (1 x 25) + 6      156        fc1   400 x 120 + 120   48,120
    conv2   16 x (6 x 25) + 16  2,416        fc2   120 x 84 + 84     10,164
                                             fc3   84 x 10 + 10         850    together 61,706
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

CITED = ("lecun1998",)


class LeNet5(nn.Module):
    """Ten logits for images of shape (n, 1, 28, 28)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, images: Tensor) -> Tensor:
        # max and ReLU commute, and ReLU is cheaper on the pooled quarter
        x = F.relu(F.max_pool2d(self.conv1(images), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        logits: Tensor = self.fc3(x)
        return logits
