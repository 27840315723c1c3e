"""The configuration: option tree, presets, `.config`, `config.py`, and who requested what."""
