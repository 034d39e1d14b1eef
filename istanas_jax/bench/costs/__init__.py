"""Benchmarks of what things cost: operations and networks."""
