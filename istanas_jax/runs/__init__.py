"""One run in its folder: the loop, checkpoints, metrics, progress, and what is asked of its files.

Start with `session` (what an open run has) and `loop` (what happens around the steps). `folder`
says what is in the folder, `file_contents` what its files must hold, `phases` how its parts are
named, and `once` skips the parts that are done. `metrics`, `progress`, `profiling`, `interrupts`
and `provenance` serve the loop; `writers` pass metrics on to services; `program_cache` keeps
compiled programs; `trained_network` is what a training leaves. Imports `training`, `storage` and
`config`.
"""
