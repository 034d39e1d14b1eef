"""Labelled images: where they come from, how they are decoded, divided, ordered and augmented.

Start with `dataset`. `sources` and `npz` find images, `in_memory` and `streaming` hand them over,
`augmentation` runs on the device inside the training step. Imports `storage`.
"""
