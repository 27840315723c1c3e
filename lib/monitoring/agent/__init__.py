"""The agent, a process that follows a run; `python -m monitoring.agent RUN_DIR` starts it."""
