"""How good a cell probably is, judged by cells that others have trained.

`regression` predicts, without training; `fit` makes its coefficients. Imports `space` and
`storage`.
"""
