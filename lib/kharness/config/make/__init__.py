"""Configuration targets of make, and the variables on its command line."""
