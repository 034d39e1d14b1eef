"""Sources are found by themselves, asked in a fixed order and offered in messages."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_sets import config

from istanas_jax.data import sources
from istanas_jax.data.dataset import load_dataset
from istanas_jax.data.errors import DataError
from istanas_jax.data.streaming import open_images

# A name means the first of these that wants it; TFDS takes what is left.
IN_ORDER = ["digits", "npz", "folder", "tfds"]


def file_of(source) -> str:
    return type(source).__module__.rpartition(".")[2]


def test_every_file_is_a_source():
    assert [file_of(source) for source in sources.all_sources()] == IN_ORDER
    files = Path(sources.__file__).parent.glob("[!_]*.py")
    assert sorted(file.stem for file in files) == sorted(IN_ORDER)


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("digits", "digits"),
        ("own.npz", "npz"),
        ("/nowhere/own.npz", "npz"),
        ("here", "folder"),
        ("./nowhere", "folder"),
        ("/nowhere", "folder"),
        ("cifar10", "tfds"),
        ("cifar10:3.0.2", "tfds"),
    ],
)
def test_which_source_a_name_means(tmp_path, monkeypatch, name, file):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert file_of(sources.find_source(name)) == file


def test_sizes_that_are_known_beforehand():
    sizes = {"cifar10": 50_000, "cifar100": 50_000, "imagenet2012": 1_281_167}
    for name, size in (sizes | {"digits": None, "mnist": None, "/nowhere": None}).items():
        assert sources.known_size(name) == size


def test_messages_offer_every_source():
    with pytest.raises(DataError) as error:
        load_dataset(config(""))
    assert str(error.value) == (
        "no data: give --config.data.name=, a TFDS name, a folder of class folders, an .npz or "
        "digits"
    )
    for ask in (lambda: load_dataset(config("cifar_10")), lambda: sources.prepare("cifar_10")):
        with pytest.raises(DataError) as error:
            ask()
        assert str(error.value).startswith(
            "there is no data 'cifar_10': give a TFDS name (near names: "
        )
        assert str(error.value).endswith("), a folder of class folders, an .npz or digits")


@pytest.mark.parametrize("name", ["digits", "own.npz"])
def test_arrays_are_neither_streamed_nor_prepared(name):
    given = config(name, image_size=8, stream=True)
    for ask in (load_dataset, open_images):
        with pytest.raises(DataError, match=f"{name} cannot be streamed; give --config.data.st"):
            ask(given)
    with pytest.raises(DataError, match=f"{name} need not be prepared"):
        sources.prepare(name)


def test_libraries_of_sources_are_imported_when_they_are_needed():
    """Each takes a good part of a second, and most commands need none of them."""
    slow = {"cv2", "grain", "simplejpeg", "sklearn", "tensorflow_datasets"}
    code = "import sys; from istanas_jax.data import dataset, sources; sources.all_sources(); "
    code += f"print(*{slow!r} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == []
