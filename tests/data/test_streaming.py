"""Streamed images: every image once, cropped alike whatever the batch, workers and hosts."""

import io
import multiprocessing
import resource
import sys
import tarfile
from dataclasses import replace

import numpy as np
import pytest
from pictures import SIZE, difference, encode, photo
from PIL import Image
from small_sets import config
from streamed import collect, no_children

from istanas_jax.data import decoding, sources, streaming
from istanas_jax.data.errors import DataError

CLASSES = ("n01440764", "n01443537", "n01484850")  # the first three of ImageNet
RESIZE = 73
# Names of two images that TFDS converts when it prepares ImageNet.
CMYK, PNG = "n01739381_1309.JPEG", "n02105855_2933.JPEG"


def tar(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory):
    """A small ImageNet, from archives like those that one downloads, by TFDS's own builder."""
    folder = tmp_path_factory.mktemp("tfds")
    train = {}
    for label, name in enumerate(CLASSES):
        pictures = {f"{name}_{i}.JPEG": encode(photo(7 * label + i)) for i in range(7)}
        pictures[f"{name}_7.JPEG"] = encode(photo(label).convert("L"))
        pictures[f"{name}_8.JPEG"] = encode(photo(label).convert("CMYK"))
        train[name] = pictures
    train[CLASSES[0]] |= {CMYK: encode(photo(0).convert("CMYK")), PNG: encode(photo(1), "PNG")}
    archives = {
        "train": {f"{name}.tar": tar(pictures) for name, pictures in train.items()},
        "val": {f"ILSVRC2012_val_{i:08}.JPEG": encode(photo(i)) for i in range(7)},
        "test": {f"ILSVRC2012_test_{i:08}.JPEG": encode(photo(i)) for i in range(2)},
    }
    (folder / "downloads" / "manual").mkdir(parents=True)
    for split, files in archives.items():
        path = folder / "downloads" / "manual" / f"ILSVRC2012_img_{split}.tar"
        path.write_bytes(tar(files))
    sources.prepare("imagenet2012", str(folder))
    return folder


@pytest.fixture(scope="module")
def found(imagenet):
    given = config("imagenet2012", dir=str(imagenet), image_size=SIZE, resize=RESIZE)
    return streaming.open_images(given)


def in_batches(order, size):
    return np.split(np.asarray(order), range(size, len(order), size))


def test_imagenet_without_tensorflow(found):
    assert "tensorflow" not in sys.modules
    assert len(found.train) == 29
    assert found.train.image_shape == (SIZE, SIZE, 3)
    assert list(np.bincount(found.train.read_labels())) == [11, 9, 9]
    assert len(found.class_names) == 1000
    test = found.read_test()  # the images called test have no labels
    assert test.source.name == "imagenet2012 validation"
    known = {65, 970, 230, 809, 516, 57, 334}  # of the first seven validation images
    assert set(collect(test, [np.arange(7)], None)[1].tolist()) == known
    encoded = [image for image, _ in found.train.source.read(range(29))]
    modes = [Image.open(io.BytesIO(image)).mode for image in encoded]
    assert sorted(modes) == ["CMYK"] * 3 + ["L"] * 3 + ["RGB"] * 23  # two were converted
    assert all(image.startswith(b"\xff\xd8") for image in encoded)  # no PNG is left


def test_a_crop_depends_on_seed_and_number_only(found):
    images = found.train
    order = np.random.default_rng(0).permutation(len(images))
    pictures, labels = collect(images, in_batches(order, 8))
    assert (pictures.dtype, labels.dtype) == (np.uint8, np.int32)
    np.testing.assert_array_equal(labels, images.read_labels()[order])
    again, _ = collect(images, in_batches(np.arange(len(images)), 5))
    np.testing.assert_array_equal(again[order], pictures)
    some = images.take(order[10:]).take(np.array([3, 1]))
    np.testing.assert_array_equal(collect(some, [np.arange(2)])[0], pictures[[13, 11]])
    assert len(some) == 2
    for seed in ((1, 1), (0, 2), (0, 1, 1)):
        other = collect(images, in_batches(order, 8), seed)[0]
        assert (other != pictures).any((1, 2, 3)).all()


def test_hosts_see_every_image_once(found):
    images = found.train
    order = in_batches(np.random.default_rng(1).permutation(28), 14)
    whole, _ = collect(images, order)
    hosts = [collect(images, [batch[h * 7 : (h + 1) * 7] for batch in order])[0] for h in range(2)]
    together = [hosts[h][b * 7 : (b + 1) * 7] for b in range(2) for h in range(2)]
    np.testing.assert_array_equal(np.concatenate(together), whole)
    assert len({picture.tobytes() for picture in whole}) == 28


def test_a_resumed_order_gives_the_same_and_decodes_nothing_else(found):
    order = in_batches(np.random.default_rng(2).permutation(len(found.train)), 6)
    straight = list(found.train.batches(order, seed=(5,)))
    seen = []

    class Spy:
        def read(self, numbers):
            seen.extend(numbers)
            return found.train.source.read(numbers)

        def __getattr__(self, name):
            return getattr(found.train.source, name)

    spied = replace(found.train, source=Spy())
    resumed = list(spied.batches(order[3:], seed=(5,)))
    assert sorted(seen) == sorted(np.concatenate(order[3:]))
    for a, b in zip(resumed, straight[3:], strict=True):
        np.testing.assert_array_equal(a[0], b[0])
        np.testing.assert_array_equal(a[1], b[1])


def test_batches_of_any_length(found):
    order = [np.arange(3), np.arange(0), np.arange(29).repeat(3)]
    sizes = [len(labels) for _, labels in found.train.batches(order, seed=None)]
    assert sizes == [3, 0, 87]
    for workers in (0, 1):
        images = replace(found.train, workers=workers)
        assert list(images.batches([], seed=None)) == []
        assert [len(labels) for _, labels in images.batches([np.arange(0)], seed=(0,))] == [0]


def test_evaluation_takes_the_middle_as_pillow_does(found):
    test = found.read_test()
    pictures, _ = collect(test, [np.arange(7)], None)
    for picture, (encoded, _) in zip(pictures, test.source.read(range(7)), strict=True):
        image = Image.open(io.BytesIO(encoded))
        width, height = (RESIZE * side // min(image.size) for side in image.size)
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
        box = (left, top, left + SIZE, top + SIZE)
        assert difference(picture, resized, box) < (2 if min(image.size) < 2 * RESIZE else 4)


def test_random_crops_are_near_pillows(found):
    source = found.train.source
    pictures, _ = collect(found.train, [np.arange(29)], (7,))
    for number, (encoded, _) in enumerate(source.read(range(29))):
        image = Image.open(io.BytesIO(encoded)).convert("RGB")
        rng = np.random.default_rng([streaming.CROP, 7, number])
        box = decoding.random_box(image.height, image.width, rng)
        # An image that libjpeg reduces is cropped at whole pixels of the reduced one.
        by = next((by for by in (8, 4, 2) if by * SIZE <= min(box.height, box.width)), 1)
        top, left, height, width = (by * round(side / by) for side in box)
        box = (left, top, min(left + width, image.width), min(top + height, image.height))
        assert difference(pictures[number], image, box) < (2 if by == 1 else 4)


@pytest.mark.slow
def test_processes_give_what_threads_give(found):
    source = found.train.source

    class Watched:
        """Complains where jax is at work: a worker must leave the accelerator alone."""

        def read(self, numbers):
            if (jax := sys.modules.get("jax")) and jax._src.xla_bridge.backends_are_initialized():
                raise DataError("jax has a device in a worker")
            return source.read(numbers)

        def __getattr__(self, name):
            return getattr(source, name)

        def __reduce__(self):
            return type(self), ()

    order = in_batches(np.arange(290) % 29, 100)
    pictures, labels = collect(found.train, order)
    watched = replace(found.train, source=Watched(), workers=2)
    np.testing.assert_array_equal(collect(watched, order)[0], pictures)
    assert no_children()
    batches = replace(found.train, workers=2).batches(order * 20, seed=(0, 1))
    np.testing.assert_array_equal(next(batches)[1], labels[:100])
    assert len(multiprocessing.active_children()) == 2
    del batches  # the consumer stops early
    assert no_children()


def test_sets_of_many_files_can_be_open(monkeypatch):
    """array_record keeps every file open; ImageNet has more than a usual limit allows."""
    asked = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    for limits in ((1024, 4096), (1024, resource.RLIM_INFINITY), (10**6, 10**6)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, limits=limits: limits)
        streaming._allow_open_files()
    assert asked == [(4096, 4096), (8192, resource.RLIM_INFINITY)]
