"""Tensors of a few elements are not worth a second thread, nor a few steps an agent that imports all anew."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch

from monitoring.agent.starter import AgentStarter


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Restore torch's thread count, which a training sets."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def agents() -> Iterator[AgentStarter]:
    """Forks the agents of trainings that run in the tests' own process, as a matrix does for its cells."""
    starter = AgentStarter(os.environ)
    yield starter
    starter.close()


@pytest.fixture(autouse=True)
def forked_agents(agents: AgentStarter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings find the process that forks their agents."""
    for name, value in agents.environment.items():
        monkeypatch.setenv(name, value)
