"""SOAP against its paper's algorithm in double precision: Adam in the eigenbasis of Shampoo."""

from __future__ import annotations

import torch
from torch import Tensor

from kharness.training.optimizers import soap

from .conftest import Descend

RATE, DECAY, EPS, B1, B2, EVERY = 0.1, 0.2, 1e-3, 0.9, 0.95, 3


def eigenbasis(statistic: Tensor) -> Tensor:
    """Eigenvectors in falling order of eigenvalue."""
    vectors: Tensor = torch.linalg.eigh(statistic)[1]
    return vectors.flip(1)


def power_iteration(statistic: Tensor, basis: Tensor) -> Tensor:
    """One step of it, orthogonalized: algorithm 4; its columns are as sorted as the basis's are."""
    orthogonal: Tensor = torch.linalg.qr(statistic @ basis)[0]
    return orthogonal


def test_steps_are_adams_in_the_eigenbasis(descend: Descend) -> None:
    """Algorithm 3. The first gradient only begins the statistics; every third step makes a new basis."""
    given = torch.randn(8, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    given = given * torch.tensor([[5.0], [1.0]]) * torch.tensor([4.0, 1.0, 0.2])  # eigenvalues far apart
    weight = torch.ones(2, 3, dtype=torch.float64)
    first = given[0]
    left, right = (1 - B2) * first @ first.T, (1 - B2) * first.T @ first
    bases = eigenbasis(left), eigenbasis(right)
    m, v, path = torch.zeros(2, 3), torch.zeros(2, 3), [weight]
    for t, g in enumerate(given[1:], 1):
        m = B1 * m + (1 - B1) * g
        v = B2 * v + (1 - B2) * (bases[0].T @ g @ bases[1]) ** 2
        rotated = bases[0].T @ m @ bases[1] / (v.sqrt() + EPS)
        rate = RATE * (1 - B2**t) ** 0.5 / (1 - B1**t)
        weight = (weight - rate * bases[0] @ rotated @ bases[1].T) * (1 - RATE * DECAY)
        left, right = B2 * left + (1 - B2) * g @ g.T, B2 * right + (1 - B2) * g.T @ g
        if t % EVERY == 0:
            bases = power_iteration(left, bases[0]), power_iteration(right, bases[1])
        path.append(weight)
    options = {"betas": (B1, B2), "eps": EPS, "precondition_every": EVERY}
    ours = descend(soap, torch.ones(2, 3), given, learning_rate=RATE, weight_decay=DECAY, **options)
    # the package orthogonalizes in single precision
    torch.testing.assert_close(ours, torch.stack(path), rtol=1e-5, atol=1e-5)
