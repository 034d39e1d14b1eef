"""Looking at cells and runs: drawings, curves, checkpoints, reports, judgements.

`drawing` (with `cell_layout` and `colours`) and `ascii_cells` draw cells, `curves` draws what a run
measured (`quantities`), `inspection/` looks into checkpoints, `report/` writes pages, and
`judgement` says what the judge thinks. All read a run's files; none runs a network or code from its
folder. Imports `runs` and `judge`.
"""
