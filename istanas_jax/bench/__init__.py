"""Benchmarks: measurements that are commands, see `python -m istanas_jax bench --help`."""
