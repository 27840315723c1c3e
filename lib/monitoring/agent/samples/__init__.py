"""What the agent samples of a run: its GPUs, the machine, and the step and processes that they belong to."""
