"""The rules about single GPUs."""
