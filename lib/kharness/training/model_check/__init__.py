"""What a training would cost, found by one step of it: `make check-model`, DRY_RUN."""
