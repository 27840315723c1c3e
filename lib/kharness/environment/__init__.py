"""The Python environment of the make targets: made from requirements/ by a bare Python, part by part."""
