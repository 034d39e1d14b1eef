"""Files of a run on a disk or in a bucket (gs://): replaced as a whole, or grown piece by piece."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

import fsspec
from etils import epath

# Listings that are kept would hide what other processes write.
fsspec.config.conf.setdefault("gcs", {}).setdefault("use_listings_cache", False)

BUCKETS = ("gs", "s3", "az")  # what etils.epath can write to


def in_bucket(path: str | os.PathLike) -> bool:
    """Whether the path is the address of an object, not a file of this machine."""
    return "://" in os.fspath(path)


def as_path(address: str | os.PathLike) -> epath.Path:
    """The path that a user gives; a ValueError if it is neither of this machine nor a bucket's."""
    scheme, found, _ = os.fspath(address).partition("://")
    if found and scheme not in BUCKETS:
        raise ValueError(
            f"{os.fspath(address)} cannot be used: give a path of this machine or gs://BUCKET/PATH"
        )
    return epath.Path(address)


class WriteError(OSError):
    """A file that could not be written, said in one sentence."""


def write_whole(path: str | os.PathLike, content: bytes) -> None:
    """Replace a file; at every moment it is the old or the new one, never half of it."""
    path = epath.Path(path)
    if in_bucket(path):
        path.write_bytes(content)  # an object appears when it is complete
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with telling(path):
        try:
            with _locked(temporary) as file:
                file.write(content)
                file.flush()
                temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    remove_leftovers(path.parent, path.name)


@contextmanager
def telling(path: str | os.PathLike) -> Iterator[None]:
    """Raise what the system says about writing as a WriteError that names the file."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"could not write {path}: {error.strerror or error}") from error


@contextmanager
def _locked(path: epath.Path) -> Iterator[BinaryIO]:
    """Open a new file, which stays locked as long as its writer lives."""
    while True:
        with open(path, "wb") as file:
            with suppress(OSError):  # file systems without locks: its leftovers stay
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # not removed before it was locked
                yield file
                return


def remove_leftovers(folder: str | os.PathLike, name: str | None = None) -> None:
    """Remove what killed writers left of this file, or of any file in the folder."""
    folder = epath.Path(folder)
    if in_bucket(folder) or not folder.is_dir():
        return
    pattern = re.compile(rf"\.{'.+' if name is None else re.escape(name)}\.\d+")
    for entry in os.scandir(folder):
        if pattern.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
            with suppress(OSError), open(entry.path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer lives
                os.unlink(entry.path)


def check_regular(path: str | os.PathLike) -> None:
    """Raise an OSError unless it is a regular file: reading a pipe or a device may never end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise OSError(errno.EINVAL, "is not a regular file", os.fspath(path))


class GrowingFile:
    """A file that grows by whole pieces, each of them stored when `add` returns.

    A bucket cannot append, so everything is written again there: use it for small files only.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = epath.Path(path)
        self._file: BinaryIO | None = None
        self._content = b""
        if in_bucket(path):
            self._content = self._path.read_bytes() if self._path.exists() else b""
        else:
            self._file = open(self._path, "ab")  # noqa: SIM115, closed by close

    def add(self, piece: bytes) -> None:
        if self._file is None:
            self._content += piece
            write_whole(self._path, self._content)
        else:
            with telling(self._path):
                self._file.write(piece)
                self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            with telling(self._path):
                self._file.close()
