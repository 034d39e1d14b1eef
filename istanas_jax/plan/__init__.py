"""Planning: whether a run fits on given devices and how long it takes; sizes of published cells.

Start with `estimate`. Imports `schedules`.
"""
