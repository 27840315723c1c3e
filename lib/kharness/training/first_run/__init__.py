"""First checks on a machine with GPUs (scripts/gpu_first_run.sh): each step timed, with a limit."""
