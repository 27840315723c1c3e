"""The process that follows a run; `python -m monitoring.agent RUN_DIR` is it."""
