"""Streams of random numbers: what each number drawn in a run is for, in one place.

Randomness is a function of seed, step and stream, or of seed, epoch and stream, so that no state of
a generator is stored, and a resumed run draws what the straight one does.
"""

# Streams of `TrainState.key` in a step of training.
IMAGES = 0  # how the images of the batch are augmented
PATHS = 1  # which paths are dropped

# Streams of `TrainState.key` in a step of search.
ARCHITECTURE_IMAGES = 0  # the batch of the architecture, or the one that it shares with W
WEIGHTS_IMAGES = 1  # the batch of W
METHOD = 2  # whatever the search method draws

# Streams of the order in which images come in an epoch.
ARCHITECTURE_ORDER = 0
WEIGHTS_ORDER = 1
TRAINING_ORDER = 2
