"""Planning: whether a run fits on given devices and how long it takes; sizes of published cells.

Start with `estimate`, which reads compiled programs by `hlo` and `gpu_hlo`; `topologies` opens the
devices, `gpus` knows GPUs that are not there. `table` is its page for people, and `published_sizes`
lists the published cells. Imports `schedules`.
"""
