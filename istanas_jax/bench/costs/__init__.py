"""Benchmarks of what things cost: operations, networks, the start of a command, larger sizes."""
