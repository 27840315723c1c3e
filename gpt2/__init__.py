"""GPT-2 on text."""
