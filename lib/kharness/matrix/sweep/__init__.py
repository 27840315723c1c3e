"""Trials of hyperparameters: which come next, which stop early, and which are best."""
