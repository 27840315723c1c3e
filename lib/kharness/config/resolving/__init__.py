"""Derive outcomes of the option tree from known ones, without resolving again."""
