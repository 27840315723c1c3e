"""The agent's threads that sample a run's GPUs and machine; the step and the processes of a sample."""
