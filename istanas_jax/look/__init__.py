"""Looking at cells and runs: drawings, curves, checkpoints, reports, judgements.

Reads a run's files, and never runs a network or code from its folder. Imports `runs` and `judge`.
"""
