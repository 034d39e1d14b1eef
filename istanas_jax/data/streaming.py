"""Images that are too many for memory, decoded as they are needed in grain's threads or processes.

A batch is an array of indices, as for images in memory; whoever asks for batches begins where the
run stands, and nothing is decoded only to be skipped. How an image is cropped is a function of the
seed and of its number in the whole set, whatever the batch, the number of hosts and of workers.
"""

import gc
import multiprocessing
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from ml_collections import ConfigDict

from istanas_jax.data.contract import EncodedImages, Found
from istanas_jax.data.errors import DataError
from istanas_jax.data.fingerprints import gather_facts, read_labels
from istanas_jax.data.in_memory import choose_shape
from istanas_jax.data.preparation import Preparation
from istanas_jax.data.sources import open_source

CROP = 3  # first word of every seed of a crop; `dataset` has the others
PIECE = 32  # images that a worker decodes and hands over at a time: 5 MB of 224 x 224
OPEN_FILES = 8192  # TFDS stores ImageNet in more than 1,000, and all are kept open


@dataclass(frozen=True)
class StreamedImages:
    """Some images of a source, in some order.

    Args:
      numbers: of the images in the source.
      preparation: what evaluation does to them; training crops at random to the same size.
      workers: processes that decode; 0 decodes in threads of this process, one per core.
    """

    source: EncodedImages
    numbers: np.ndarray
    preparation: Preparation
    workers: int = 0

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.preparation.shape

    def take(self, indices: np.ndarray) -> "StreamedImages":
        """These images, in this order."""
        return replace(self, numbers=self.numbers[indices])

    def read_labels(self) -> np.ndarray:
        """Labels of all images, which may mean reading the whole set."""
        return read_labels(self.source, self.numbers.tolist()).astype(np.int32)

    def batches(
        self, order: Iterable[np.ndarray], *, seed: tuple[int, ...] | None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Images, uint8 (b, size, size, channels), and labels, int32 (b,), of each index array.

        A seed crops at random for training, None takes the middle. Threads and processes end with
        the iterator: when it is used up, closed or no longer referred to.
        """
        from istanas_jax.data import decoding

        order = [self.numbers[indices] for indices in order]
        decode = _Decode(self.source, self.preparation, seed, decoding.random_crop)
        pieces = _iterate(_Pieces.of(order), decode, self.workers)
        try:
            for batch in order:
                yield self._assemble(pieces, len(batch))
        finally:
            pieces.close()
            if self.workers:  # grain's last exception holds itself, and shared memory with it
                del pieces
                gc.collect()

    def _assemble(self, pieces: Iterator, size: int) -> tuple[np.ndarray, np.ndarray]:
        images = np.empty((size, *self.image_shape), np.uint8)
        labels = np.empty(size, np.int32)
        for start in range(0, size, PIECE):
            part = slice(start, start + PIECE)
            try:
                images[part], labels[part] = next(pieces)
            except RuntimeError as error:  # grain's
                said = str(error).split(". ")[0]
                raise DataError(
                    f"a process that decodes images was lost ({said}); if memory or /dev/shm ran "
                    "short, give fewer --config.data.workers, or 0 for threads"
                ) from error
        return images, labels


@dataclass(frozen=True)
class _Pieces:
    """The image numbers of all batches in pieces, as a data source for grain."""

    numbers: np.ndarray
    bounds: np.ndarray
    in_a_batch: int

    @classmethod
    def of(cls, order: Sequence[np.ndarray]) -> "_Pieces":
        starts = np.cumsum([0, *map(len, order)])
        bounds = [np.arange(start, end, PIECE) for start, end in pairwise(starts)]
        bounds = np.concatenate([*bounds, starts[-1:]])
        most = max(map(len, order), default=0)
        numbers = np.concatenate([np.empty(0, np.int64), *order])
        return cls(numbers, bounds, -(-most // PIECE))

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, i: int) -> list[int]:
        if i >= len(self):
            raise IndexError(i)
        return self.numbers[self.bounds[i] : self.bounds[i + 1]].tolist()


@dataclass(frozen=True)
class _Decode:
    """What a worker does with the numbers of some images."""

    source: EncodedImages
    preparation: Preparation
    seed: tuple[int, ...] | None  # None prepares images as for a test
    # From `decoding`: unpickling it imports that module before the threads of a worker begin.
    random_crop: Callable[..., np.ndarray]

    def __call__(self, numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
        images = np.empty((len(numbers), *self.preparation.shape), np.uint8)
        labels = np.empty(len(numbers), np.int32)
        for i, (encoded, label) in enumerate(self.source.read(numbers)):
            images[i] = self._image(encoded, numbers[i])
            labels[i] = label
        return images, labels

    def _image(self, encoded: bytes, number: int) -> np.ndarray:
        how, what = self.preparation, self.source.name_of(number)
        if self.seed is None:
            return how(encoded, what)
        rng = np.random.default_rng([CROP, *self.seed, number])
        return self.random_crop(encoded, how.size, how.channels, what, rng)


def _iterate(pieces: _Pieces, decode: _Decode, workers: int):
    """grain's iterator over decoded pieces, in order; at least one whole batch is made ahead."""
    import grain
    from absl import flags

    flags.FLAGS.mark_as_parsed()  # grain 0.2.18 looks at one of them (google/grain issue 1355)
    _allow_open_files()
    dataset = grain.MapDataset.source(pieces).map(decode)
    workers = min(workers, len(pieces))
    if not workers:
        options = grain.ReadOptions(cores(), prefetch_buffer_size=cores() + pieces.in_a_batch)
        return iter(dataset.to_iter_dataset(options))
    options = grain.MultiprocessingOptions(workers, -(-pieces.in_a_batch // workers))
    # Two threads in a worker: one reads while the other decodes.
    dataset = dataset.to_iter_dataset(grain.ReadOptions(2, prefetch_buffer_size=2))
    return iter(dataset.mp_prefetch(options, worker_init_fn=_begin_worker))


def cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _begin_worker(index: int, count: int) -> None:
    """Set up a new process. grain may import jax in it, but nothing uses jax."""
    # Ctrl-C and a cluster's SIGTERM reach all processes of a run; it is the first that ends it,
    # after a checkpoint.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _allow_open_files()


def _end_with_parent() -> None:
    """Exit when the parent does, so that a killed run leaves no process behind."""
    multiprocessing.parent_process().join()
    os._exit(1)


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def open_images(config: ConfigDict) -> Found:
    """Open the images that a config's `data` block names, to be decoded as they are needed.

    image_channels 0 takes those of the usual image, resize 0 is image_size: the largest middle
    square.
    """
    size, resize, workers = config.image_size, config.get("resize", 0), config.get("workers", 0)
    opened = open_source(config, stream=True)
    _check_size(opened.name, size, resize)
    size, channels = choose_shape(opened, size, config.image_channels)
    how = Preparation(size, channels, resize or size)

    def all_of(images: EncodedImages) -> StreamedImages:
        return StreamedImages(images, np.arange(len(images)), how, workers)

    def look_at_test():
        test = opened.open_test()
        # Labels that are not known beforehand are too many: those of ImageNet are in 7 GB.
        return gather_facts(test, how.shape, all_labels=test.labels is not None)

    train, names = all_of(opened.train), opened.class_names
    if opened.open_test is None:
        return Found(train, names, None, how)
    return Found(train, names, lambda: all_of(opened.open_test()), how, look_at_test)


def _check_size(name: str, size: int, resize: int) -> None:
    if not size:
        raise DataError(
            f"{name}: images that are decoded as they are needed must be given a size, "
            "--config.data.image_size"
        )
    if 0 < resize < size:
        raise DataError(
            f"{name}: evaluation cannot take {size} pixels from the middle of {resize}; give a "
            "larger --config.data.resize, or 0"
        )
