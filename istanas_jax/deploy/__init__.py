"""Networks to take away: exports, predictions, the names of the authors' release.

Start with `export`; `exported` checks what it wrote, `export_texts` describes it, `latency` times
it. `folding` folds batch norms, `onnx_model` and `pytorch_source` write the network for others to
run, `predict` classifies images, `release_names` and `release_state` translate weights. Imports
`runs`, `schedules` and `networks`.
"""
