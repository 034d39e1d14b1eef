"""A data set in the format of TensorFlow Datasets."""

import tensorflow_datasets as tfds
from small_sets import images


class TinyGray(tfds.core.GeneratorBasedBuilder):
    """A registered set of one channel, whose test images are called validation."""

    VERSION = tfds.core.Version("1.0.0")
    IMAGES = images(11)

    def _info(self):
        features = {"image": tfds.features.Image(shape=(6, 6, 1))}
        features["label"] = tfds.features.ClassLabel(names=["no", "yes"])
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples(0, 8),
            "validation": self._generate_examples(8, 11),
        }

    def _generate_examples(self, first, end):
        for i in range(first, end):
            yield i, {"image": self.IMAGES[i], "label": i % 2}
