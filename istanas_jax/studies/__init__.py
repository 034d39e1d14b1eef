"""Studies: methods compared under one budget, see `python -m istanas_jax study --help`.

`base` has what all studies share, and `runs` what those made of runs add. Each study is a file:
`cost`, `correlation`, `accuracy`, `suite`, `quality` and `curves`. `minutes` gives every method the
same time, `stats` has the statistics and `plots` the drawings. What the paper prints is in
`space.paper_tables`. Imports `bench`, `schedules` and `judge`.
"""
