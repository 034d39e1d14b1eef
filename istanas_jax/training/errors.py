"""What can go wrong while training."""


class TrainingError(ValueError):
    """A run that cannot go on, said in one sentence."""
