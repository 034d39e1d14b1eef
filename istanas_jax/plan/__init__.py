"""Planning: whether a run fits on given devices and how long it takes; sizes of published cells.

Start with `estimate`, which reads compiled programs by `hlo`; `table` is its page for people, and
`published_sizes` lists the published cells. Imports `schedules`.
"""
