"""Labelled images: where they come from, how they are decoded, divided, ordered and augmented.

Start with `dataset`. `sources/` has a file for each kind of data, whose promise is in `contract`;
`in_memory` and `streaming` hand the images over, `augmentation` runs on the device inside the
training step. Imports `storage`.
"""
