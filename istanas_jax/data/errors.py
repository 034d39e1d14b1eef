"""What can be wrong with data."""


class DataError(ValueError):
    """Data that cannot be used, said in one sentence that tells what to do."""
