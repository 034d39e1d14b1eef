"""Looking into checkpoints, without jax.

Start with `contents`, which says what a checkpoint holds; `files` finds and reads it, `arch`
describes its architecture, `diff` compares two, and `table` writes both for people.
"""
