"""What several rules measure in the same way."""
