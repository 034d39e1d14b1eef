"""Sparse coding: z is recovered from b by a LASSO (sections 3.1 to 3.3 of the paper).

Start with `lasso`, one node; `active_set` makes its answer exact; `architecture` holds b, A, z,
support and coefficients of all nodes of a search. Imports `space`.
"""
