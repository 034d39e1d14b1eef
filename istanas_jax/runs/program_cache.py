"""Programs that jax compiled, kept on the disk so that a resumed run starts at once."""

import os
import platform
import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import jax
from jax._src import compilation_cache  # the files of its cache have no public name
from jax._src.lru_cache import LRUCache
from jaxlib.version import __version__ as jaxlib_version

from istanas_jax.storage.files import in_bucket, write_whole

MAX_BYTES = 4 * 2**30  # of the default folder; a digits run leaves about 30 MB

_files_of_jax = compilation_cache.get_file_cache


def keep(workdir: str | os.PathLike | None = None) -> None:
    """Keep programs from now on, in the folder that the user chose or in our default.

    workdir: folder of the run. If it is in a bucket, programs are kept beside it: the machines of a
    slice that was preempted are new, and would compile again.
    """
    if not jax.config.jax_compilation_cache_dir:
        folder = default_folder(workdir)
        jax.config.update("jax_compilation_cache_dir", folder)
        if not in_bucket(folder):
            shrink(Path(folder).parent, MAX_BYTES)
    compilation_cache.get_file_cache = files


def default_folder(workdir: str | os.PathLike | None = None) -> str:
    """The folder of programs for this jaxlib and machine.

    jax does not ask which processor a program for CPUs was compiled for: on another it may end with
    an illegal instruction, where machines share their home folder or a bucket.
    """
    if workdir is not None and in_bucket(workdir):
        parent = f"{str(workdir).rstrip('/').rpartition('/')[0]}/istanas_programs"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        parent = os.path.join(cache, "istanas_jax")
    return f"{parent}/{_machine()}"


def _machine() -> str:
    """Version of jaxlib, platform and processor, as a name for a folder."""
    plugins = {"libtpu": "tpu", "jax_cuda12_plugin": "cuda", "jax_cuda13_plugin": "cuda"}
    found = (name for plugin, name in plugins.items() if find_spec(plugin) is not None)
    chosen = jax.config.jax_platforms  # not what jax would find: asking would start it too early
    name = chosen.partition(",")[0] if chosen else next(found, "cpu")
    parts = (jaxlib_version, name, _processor())
    return "-".join(re.sub(r"[^A-Za-z0-9.]+", "_", part).strip("_") for part in parts)


def _processor() -> str:
    """The processor's model, as Linux or Python name it."""
    try:
        described = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        described = ""
    named = re.search(r"^model name\s*:\s*(.+)$", described, re.M)
    return named[1] if named else platform.processor() or platform.machine()


def shrink(folder: Path, max_bytes: int) -> None:
    """Delete the programs that were used longest ago, until the others fit into `max_bytes`.

    Those of other versions and machines, in folders beside each other, count too.
    """
    programs = []
    for path in folder.glob("*/*-cache"):
        with suppress(FileNotFoundError):  # another process deletes too
            programs.append((path.stat().st_mtime, path.stat().st_size, path))
    total = 0
    for _, size, path in sorted(programs, reverse=True):
        total += size
        if total > max_bytes:
            path.unlink(missing_ok=True)


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
                os.utime(self._file(key))  # used now: `shrink` takes others first
        except Exception:  # several libraries raise their own
            self._file(key).unlink(missing_ok=True)
            return None
        return value

    def put(self, key: str, value: bytes) -> None:
        if not self._file(key).exists():
            write_whole(self._file(key), value)

    def _file(self, key: str):
        return self.path / f"{key}-cache"
