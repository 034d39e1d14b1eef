"""The search space: nodes, connections, operations, genotypes and the published cells.

`paper_tables` has the figures that the paper prints of them. Plain Python without jax or numpy, so
that looking at a cell costs nothing. Imports nothing of this package. Start with `connections`,
which holds the symbol table of the whole project.
"""
