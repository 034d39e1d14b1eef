"""Networks as functions of images, weights, a support and its coefficients.

They know no sparse coding. Start with `operations`, then `cells`; `target_net` has known cells,
`supernet` all candidates, run in one of three ways: `dynamic` (the support is data), `static` (it
is known to Python) and `dense` (everything runs). Imports `space` and `devices`.
"""
