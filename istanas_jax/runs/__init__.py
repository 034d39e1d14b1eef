"""One run in its folder: the loop, checkpoints, metrics, progress, and what is asked of its files.

Start with `session` (what an open run has) and `loop` (what happens around the steps); `folder`
says what is in the folder. Imports `training`, `storage` and `config`.
"""
