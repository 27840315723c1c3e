"""The page in a browser: every run below some folders, live or finished, from its files alone.

`python -m monitoring.web results` serves it; it only reads, but for requests to running trainings.
"""
