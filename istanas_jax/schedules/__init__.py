"""What a run does: search, training, and the schedules that put them together.

Start with `two_stage`, `one_stage` and `retrain`, each with a `run(config, workdir)`; `search`
(with `watch`) and `training` are the phases they are made of, `nets` makes their networks, and
`results` writes what a run leaves. `dry_run` and `memory` check a run before it starts; `outline`
describes its images without reading them; `set_aside` keeps the trainings of other cells apart;
`transfer` starts a training from another network's weights. Imports `methods`, `runs` and
`look`.
"""
