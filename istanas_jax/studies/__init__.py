"""Studies: methods compared under one budget, see `python -m istanas_jax study --help`."""
