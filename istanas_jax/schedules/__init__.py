"""What a run does: search, training, and the schedules that put them together.

Start with `two_stage` and `one_stage`, each a `run(config, workdir)`; `search` and `training` are
the phases they are made of. Imports `methods`, `runs` and `look`.
"""
