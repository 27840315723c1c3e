"""What a trained model does: how fast it is, how often it is right, and what it says of some pictures."""
