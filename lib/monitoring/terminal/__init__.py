"""The dashboard in a terminal; `python -m monitoring.gpu_dashboard` opens it."""
