"""kharness: from a Kconfig menu to trained, tracked and compared PyTorch runs."""
