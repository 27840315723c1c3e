"""Train a past run again, and compare the two bit for bit."""
