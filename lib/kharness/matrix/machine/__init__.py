"""The cores and GPUs that cells are placed on."""
