"""Networks to take away: exports, predictions, the names of the authors' release.

Start with `export`; `exported` checks what it wrote, `folding` folds batch norms, `predict`
classifies images, `release_names` and `release_state` translate weights. Imports `runs` and
`networks`.
"""
