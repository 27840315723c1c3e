"""Choices made by trial steps before the first step: BATCH_SIZE_AUTO, COMPILE_AUTO, AMP_AUTO."""
