"""Cost of a training, found by one step of it: `make check-model`, DRY_RUN."""
