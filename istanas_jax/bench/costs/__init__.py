"""Benchmarks of what things cost: operations, networks, starts, and how a step's cost grows.

`apart` measures a step in a process of its own, for `grow` and for `study cost`.
"""
