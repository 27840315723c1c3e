"""Trainings in several processes (ranks): their start, what they exchange, and how they end."""
