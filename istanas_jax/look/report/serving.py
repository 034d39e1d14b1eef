"""Serve the pages of runs under way, on this machine only: `python -m istanas_jax watch`.

Pages are made from the files of the folder, when they are asked for; nothing is written. The names
in addresses are looked up among the runs of the folder and never made into paths, so nothing else
can be read. A page asks every other second whether there is a newer one.
"""

from __future__ import annotations

import errno
import hashlib
import html
import os
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from urllib.parse import quote, unquote

from etils import epath

from istanas_jax.look.report import index, run_page
from istanas_jax.look.report.facts import gather, is_locked, is_run, last_sign
from istanas_jax.look.report.html import page, tag
from istanas_jax.runs.folder import CONFIG, LOCK, METRICS, REPLAY, REPORT, RESULT
from istanas_jax.storage.files import as_path, in_bucket

HOST = "127.0.0.1"
ANY_REQUEST = "img-src data:"  # the end of a page's policy, which forbids requests
OWN_REQUESTS = "img-src data:; connect-src 'self'"
ALONE = "This page needs no network and no server."


class Runs:
    """The runs in a folder, or the one that it is, and their pages; the only reader of files."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = as_path(folder)
        self.seconds = 10 if in_bucket(self.folder) else 2  # between two looks of a page
        self._lock = threading.Lock()
        self._pages: dict[str, tuple[str, str]] = {}  # the newest of each, with its version
        self._versions: dict[str, tuple[float, str]] = {}  # with the time of the look
        if not is_run(self.folder) and not self._several():
            raise ValueError(f"{folder} holds no run, nor folders of runs")

    def _several(self) -> dict[str, epath.Path]:
        """The runs in the folder by name, without those that are only linked to from it."""
        runs = index.find_runs(self.folder)
        if not in_bucket(self.folder):
            inside = os.path.realpath(self.folder) + os.sep
            runs = [run for run in runs if os.path.realpath(run).startswith(inside)]
        return {run.name: run for run in runs}

    def find(self, name: str) -> epath.Path | None:
        """The run of this name, the folder's own if the name is empty; None if there is none."""
        if not name:
            return self.folder
        return None if is_run(self.folder) else self._several().get(name)

    def version(self, name: str) -> str:
        """A text that changes whenever the page would; looked up once in a while."""
        with self._lock:
            when, known = self._versions.get(name, (0.0, ""))
            if time.monotonic() - when > self.seconds / 2 or not known:
                known = self._mark(name)
                self._versions[name] = time.monotonic(), known
            return known

    def _mark(self, name: str) -> str:
        try:
            several = not name and not is_run(self.folder)
            runs = self._several().values() if several else [self.find(name)]
            marks = [_last_change(run) for run in runs]
        except (ValueError, OSError) as error:
            marks = [str(error)]
        return hashlib.sha256(repr(marks).encode()).hexdigest()[:16]

    def page(self, name: str) -> str:
        """The page of a run, or the table of all; a page that says why there is none."""
        version = self.version(name)
        kept = self._pages.get(name)
        if kept is None or kept[0] != version:
            kept = version, live(self._made(name), version, self.seconds)
            self._pages[name] = kept
        return kept[1]

    def _made(self, name: str) -> str:
        try:
            folder = self.find(name)
            if name or is_run(folder):
                return run_page.run_page(gather(folder))
            if not (runs := self._several().items()):
                raise ValueError(f"{self.folder} holds no run")
            links = [(run, f"./{quote(name)}/{REPORT}") for name, run in runs]
            return index.index_page(self.folder.name, links)
        except (ValueError, OSError) as error:  # half written, or gone: the next look may do better
            words = tag("p", f"There is no page at the moment: {error}.", class_="remark")
            return page("istanas", words, {"page": "index"})


def _last_change(run: epath.Path) -> tuple:
    """What differs once the run has written something, has ended or goes on."""
    files = (run / name for name in (CONFIG, METRICS, REPLAY, RESULT))
    sizes = [file.stat().length if file.exists() else None for file in files]
    return run.name, last_sign(run), sizes, is_locked(run / LOCK)


def live(text: str, version: str, seconds: int) -> str:
    """The page with a script that loads it again when there is a newer version."""
    script = (resources.files("istanas_jax.look.report") / "page" / "live.js").read_text()
    data = f'data-version="{html.escape(version)}" data-seconds="{seconds}"'
    text = text.replace(ANY_REQUEST, OWN_REQUESTS, 1)
    begin, found, end = text.rpartition("</body>")
    begin = begin.replace(ALONE, f"This page updates by itself, every {seconds} seconds.", 1)
    return f"{begin}<script {data}>\n{script}</script>\n{found}{end}"


class _Handler(BaseHTTPRequestHandler):
    runs: Runs

    def do_GET(self) -> None:
        # Another host name means that a page from elsewhere asks, through a name of its own.
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in (HOST, "localhost"):
            return self._answer(HTTPStatus.FORBIDDEN, "text/plain", "only for this machine")
        *folders, file = unquote(self.path.partition("?")[0]).removeprefix("/").split("/")
        name = folders[0] if folders else ""
        known = len(folders) < 2 and self.runs.find(name) is not None
        if known and file == "version":
            return self._answer(HTTPStatus.OK, "text/plain", self.runs.version(name))
        if known and file in ("", REPORT):
            return self._answer(HTTPStatus.OK, "text/html", self.runs.page(name))
        return self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is no such page")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_) -> None:
        """Say nothing of requests."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_) -> None:
        """A browser that has gone does not read its answer."""


def serve(folder: str | os.PathLike, port: int) -> ThreadingHTTPServer:
    """A server of the runs in this folder, to be run by `serve_forever`; port 0 is any free one."""
    handler = type("Handler", (_Handler,), {"runs": Runs(folder)})
    try:
        return _Server((HOST, port), handler)
    except OSError as error:
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise ValueError(f"port {port} is in use or reserved: choose another --port") from None
        raise
