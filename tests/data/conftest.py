"""Data sets that several files read."""

import pytest
import tfds_sets  # noqa: F401  registers the set with TFDS

from istanas_jax.data import sources


@pytest.fixture(scope="module")
def tiny_gray(tmp_path_factory):
    """The folder of a set of one channel in TFDS's format."""
    folder = tmp_path_factory.mktemp("tfds")
    sources.prepare("tiny_gray", str(folder))
    return folder
