"""Matrices of anybody's command: axes given by hand, placeholders in the words of the command."""
