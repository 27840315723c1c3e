"""The agent's samples of a run: its GPUs, the machine, and the step and processes that they belong to."""
