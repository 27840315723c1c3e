"""The configuration front door: option tree, presets, `.config`, `config.py`, and who asked for what."""
