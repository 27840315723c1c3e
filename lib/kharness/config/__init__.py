"""The configuration front door: option tree, presets, `.config`, `config.py`, and who requested what."""
