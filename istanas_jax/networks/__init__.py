"""Networks as functions of images, weights, a support and its coefficients.

They know nothing of sparse coding. Start with `operations` (on `kernels` and `batch_norm`), then
`cells`. `target_net` has known cells, between the parts of `stem_and_heads`; the super-net, in a
package of its own (`supernet`), has all candidates. `variables` draws weights, `absorption` moves
coefficients into batch norms, `counting` and `description` tell sizes, `operation_times` and
`latency` times. Imports `space` and `devices`.
"""
