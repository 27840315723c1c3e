"""Outcomes of the option tree that are made from one that is known."""
