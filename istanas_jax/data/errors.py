"""The error that all of `data` raises for data that cannot be used."""


class DataError(ValueError):
    """Data that cannot be used, said in one sentence that tells what to do."""
