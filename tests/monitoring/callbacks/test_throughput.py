"""Tokens per second and MFU, against what the steps computed and the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from monitoring.callbacks.throughput import Throughput, flops_of_token, samples_in, tokens_in


def test_utilization_is_of_the_steps_since_the_last_record_and_of_all() -> None:
    throughput = Throughput(torch.device("cpu"), dtype="float32", num_devices=2)
    throughput._use = replace(throughput._use, peak=1e12)  # as of a device that is in the table
    seen = []
    for steps in (1, 3):
        for _ in range(steps):
            throughput.step(4)
            throughput.add(32, flops_of_token(100, 100) * 32)
        seen.append(throughput.read())
    for found in seen:
        seconds = found["sec_per_step"]
        assert isinstance(seconds, float)
        assert found["samples_per_sec"] == pytest.approx(4 / seconds)
        assert found["tokens_per_second"] == pytest.approx(32 / seconds)
        assert found["step_mfu"] == pytest.approx(600 * 32 / seconds / 1e12)
    # all time has that of the steps in it
    shares = [(found["overall_mfu"], found["step_mfu"]) for found in seen]
    assert all(isinstance(overall, float) and overall > 0 for overall, _ in shares)
    overall, of_step = shares[0]
    assert isinstance(overall, float)
    assert isinstance(of_step, float)
    assert overall <= of_step


def test_an_evaluation_takes_no_tokens_from_the_rate() -> None:
    """Tokens of steps before it are counted with the steps; the clock begins anew."""
    throughput = Throughput(torch.device("cpu"), dtype="float32", num_devices=1)
    for _ in range(2):
        throughput.step(1)
        throughput.add(10, None)
    throughput.restart()
    for _ in range(3):
        throughput.step(1)
        throughput.add(10, None)
    found = throughput.read()
    samples = found["samples_per_sec"]
    assert isinstance(samples, float)
    assert found["tokens_per_second"] == pytest.approx(10 * samples)
    assert (found["step_mfu"], found["overall_mfu"]) == (None, None)


def test_frozen_parameters_have_no_gradient_of_their_own() -> None:
    """Forward 2, backward 2 for what comes before and 2 for the weight itself (Kaplan et al. 2020)."""
    assert flops_of_token(10, 10) == 60
    assert flops_of_token(10, 1) == 6 + 9 * 4


@pytest.mark.parametrize(
    ("batch", "tokens", "samples"),
    [
        ({"input_ids": torch.zeros(2, 3, dtype=torch.int64), "labels": torch.zeros(2)}, 6, 2),
        ((torch.zeros(4, 5, dtype=torch.int32), torch.zeros(4, 5)), 20, 4),
        ([torch.zeros(4, 5)], 0, 4),
        ({"pixel_values": torch.zeros(2, 3, 8, 8)}, 0, 2),
        (torch.zeros(3, 8, 8, dtype=torch.uint8), 0, 3),
        (torch.zeros(()), 0, 1),
        ([], 0, 0),
        ({}, 0, 0),
        (None, 0, 0),
    ],
)
def test_batches_are_counted(batch: object, tokens: int, samples: int) -> None:
    assert (tokens_in(batch), samples_in(batch)) == (tokens, samples)
