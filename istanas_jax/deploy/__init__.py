"""Networks to take away: exports, predictions, the names of the authors' release.

Start with `export`. Imports `runs` and `networks`.
"""
