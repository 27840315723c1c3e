"""Statistics, and what they allow to say."""
