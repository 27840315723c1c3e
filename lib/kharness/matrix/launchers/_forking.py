"""Starts runs: forked where that is safe, else as fresh processes. No other module uses the fork servers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping

from kharness.matrix.launchers._processes import FreshProcesses, Holder
from kharness.runs.command import CommandLaunch
from kharness.runs.launch import Launch, Slot, environment_of_runs
from monitoring.errors import refusal

TYPE_CHECKING = False
if TYPE_CHECKING:  # a single run, which starts no server, does not wait for what these import
    from kharness.matrix.launchers._fork_server import ForkServerClient
    from monitoring.agent.starter import AgentStarter

# A fork server that is lost is replaced; one that is lost this often is better done without.
MOST_LOSSES = 3
# Imports that take longer are told of: those of a fresh environment take twenty seconds.
QUIET_SECONDS = 3.0


class Forking:
    """Forks trainings from a process that has imported torch, and agents from one of their own."""

    def __init__(
        self, say: Callable[[str], None], *, enabled: bool, fresh: FreshProcesses | None = None
    ) -> None:
        """Without `enabled` nothing is forked, and no server is started; `fresh` starts what is not."""
        self._environment = environment_of_runs(Slot())
        self._say = say
        self._fresh = fresh or FreshProcesses()
        self._servers: list[ForkServerClient] = []
        """The last one forks; earlier ones have been lost and may have children that have not ended yet."""
        self._enabled = enabled
        self._told = False
        """Whether it was said that imports take long."""
        self._agents: AgentStarter | None = None
        if enabled:
            self._start_agent_starter()

    def is_ready(self, launch: Launch) -> bool:
        """Whether `start` would not wait for imports, which this call begins."""
        if isinstance(launch, CommandLaunch) or not self._enabled:
            return True
        if not self._servers:
            self._new_server()
        if not self._enabled or self._servers[-1].is_ready():
            return True
        if not self._told and self._servers[-1].seconds > QUIET_SECONDS:
            self._told = True
            self._say("importing torch, which takes longer the first time")
        return False

    def start(self, launch: Launch, slot: Slot) -> tuple[int, float | None]:
        """Process id and start of a run; MatrixError if it cannot be started."""
        environment = {**environment_of_runs(slot), **(self._agents.environment if self._agents else {})}
        # a module, as the bridge around anybody's program, is no script that could be forked
        forked = None if launch.program[0] == "-m" else self._forked(launch, slot, environment)
        return forked or self._fresh.start(launch, slot, environment)

    def _forked(
        self, launch: Launch, slot: Slot, environment: Mapping[str, str]
    ) -> tuple[int, float | None] | None:
        """Process id and start of a child; None where a fresh process is to be started."""
        from kharness.matrix.launchers._fork_server import ForkServerLost, ForkUnsafe

        if self._enabled and not self._servers:
            self._new_server()
        while self._enabled:
            try:
                return self._servers[-1].fork(launch, slot, environment)
            except ForkUnsafe as error:
                self._stop(str(error))
                if not self._servers[-1].has_children:
                    self._servers.pop().close()
            except ForkServerLost as error:
                if len(self._servers) >= MOST_LOSSES or not self._servers[-1].was_ready:
                    self._stop(str(error))
                else:
                    self._say(f"note: {error}; starting another")
                    self._new_server()
        return None

    def holder(self, pid: int) -> Holder:
        """Whose child a run is."""
        return next((fork_server for fork_server in self._servers if fork_server.holds(pid)), self._fresh)

    def filenos(self) -> list[int]:
        """Descriptors that become readable when a fork has ended; the end of another child is a SIGCHLD."""
        return [fd for fork_server in self._servers if (fd := fork_server.fileno()) is not None]

    def close(self) -> None:
        """End all children; what forks agents is the last, so that each could ask for its own."""
        for fork_server in self._servers:
            fork_server.close()
        self._servers.clear()
        self._fresh.close()
        if self._agents is not None:
            self._agents.close()

    def _new_server(self) -> None:
        from kharness.matrix.launchers._fork_server import ForkServerClient, ForkUnsafe

        try:
            self._servers.append(ForkServerClient(self._environment))
        except ForkUnsafe as error:
            self._stop(str(error))
        except OSError as error:
            self._stop(refusal(error))

    def _start_agent_starter(self) -> None:
        """Without it each run starts its own agent, so there is nothing to report."""
        if sys.platform == "linux":
            from monitoring.agent.starter import AgentStarter

            with contextlib.suppress(OSError):
                self._agents = AgentStarter(self._environment)

    def _stop(self, reason: str) -> None:
        self._enabled = False
        self._say(f"note: runs start as fresh processes, which takes longer: {reason}")
