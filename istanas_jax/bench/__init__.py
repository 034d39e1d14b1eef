"""Benchmarks: measurements that are commands, see `python -m istanas_jax bench --help`.

Each of `recovery`, `step`, `methods`, `memory`, `loop`, `data`, `switch` and `torture` (with
`damage` and `same`) has a `run` that measures and a `table` for people. `documented` repeats the
commands whose results are documented; `search_time` serves the studies; `costs` times operations,
networks and starts, and shows how costs grow. Imports `schedules` and `deploy`.
"""
