"""Programs that jax compiled, kept on the disk so that a resumed run starts at once."""

import os

import jax
from jax._src import compilation_cache  # the files of its cache have no public name
from jax._src.lru_cache import LRUCache

from istanas_jax.storage.files import in_bucket, write_whole

_files_of_jax = compilation_cache.get_file_cache


def keep() -> None:
    """Keep programs from now on, in the folder that the user chose or in our default."""
    if not jax.config.jax_compilation_cache_dir:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(cache, "istanas_jax"))
    compilation_cache.get_file_cache = files


def files(path: str):
    """Make the cache in this folder, as jax asks for it."""
    if in_bucket(path) or jax.config.jax_compilation_cache_max_size != -1:
        return _files_of_jax(path)
    return WholeFiles(path, max_size=-1), path


class WholeFiles(LRUCache):
    """A cache whose entries are whole.

    jax writes entries in place. If a killed process left a part of one, jax would warn of it at
    every start and never replace it.
    """

    def get(self, key: str) -> bytes | None:
        value = super().get(key)
        try:
            if value is not None:
                compilation_cache.decompress_executable(value)
        except Exception:  # several libraries raise their own
            self._file(key).unlink(missing_ok=True)
            return None
        return value

    def put(self, key: str, value: bytes) -> None:
        if not self._file(key).exists():
            write_whole(self._file(key), value)

    def _file(self, key: str):
        return self.path / f"{key}-cache"
