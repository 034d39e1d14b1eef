"""One step of training, of search and of evaluation, and the state they change.

These are pure functions. Start with `steps`, then `search_steps`, which asks `step_rules` of a
search method. `objective` is what they minimise, `optimizers` how, `states` what they carry along,
`streams` what randomness is for; `evaluation` tests a whole split. `replay_row` and
`search_accuracy` say what a search tells of itself. Imports `networks`, `data` and `devices`.
"""
