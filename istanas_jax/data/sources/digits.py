"""scikit-learn's handwritten digits: 1,797 images of 8 x 8 pixels that are installed with it."""

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.contract import Claim, DataSource, Found
from istanas_jax.data.in_memory import Split
from istanas_jax.data.preparation import Preparation


class Digits(DataSource):
    claim = Claim.NAME
    can_stream = False

    def means(self, name: str) -> bool:
        return name == "digits"

    def offer(self, name: str) -> str:
        return "digits"

    def open(self, name: str, config: ConfigDict) -> Found:
        from sklearn.datasets import load_digits  # here: it takes long to import

        digits = load_digits()
        images = np.rint(digits.images * (255 / 16)).astype(np.uint8)[..., None]
        split = Split(images, digits.target.astype(np.int32))
        return Found(split, tuple("0123456789"), None, Preparation(size=8, channels=1))


SOURCE = Digits()
