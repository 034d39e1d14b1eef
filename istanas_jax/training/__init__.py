"""One step of training, of search and of evaluation, and the state they change.

Pure functions: start with `steps`, then `search_steps`; `objective` is what they minimise, `states`
what they carry along. Imports `networks`, `data` and `devices`.
"""
