"""Inference with a trained model: its speed and accuracy, and its predictions for some pictures."""
