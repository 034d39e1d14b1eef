"""A bucket on loopback: as much of Cloud Storage's JSON API as gcsfs and tensorstore use.

with Bucket() as bucket:
    subprocess.run(command, env=os.environ | bucket.environment)  # may use gs://bucket/...
"""

import base64
import hashlib
import itertools
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

NAME = "bucket"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """Clients that are killed do not read their answers."""


class Stored(NamedTuple):
    content: bytes
    generation: int


class Bucket:
    """The one bucket, its objects by name, and the server."""

    def __init__(self):
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, bytes] = {}  # begun
        self.lock = threading.Lock()
        self.generations = itertools.count(1)
        self.requests: list[str] = []
        handler = type("Handler", (_Handler,), {"bucket": self})
        self.server = _Server(("127.0.0.1", 0), handler)
        address = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.environment = {
            "STORAGE_EMULATOR_HOST": address,  # gcsfs
            "FSSPEC_GCS_TOKEN": "anon",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # would ask by gRPC
            "TENSORSTORE_GCS_HTTP_URL": address,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
        }

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()

    def put(self, name: str, content: bytes) -> Stored:
        self.objects[name] = Stored(content, next(self.generations))
        return self.objects[name]

    def about(self, name: str) -> dict:
        content, generation = self.objects[name]
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": NAME,
            "size": str(len(content)),
            "generation": str(generation),
            "metageneration": "1",
            "md5Hash": base64.b64encode(hashlib.md5(content).digest()).decode(),
            "updated": "2026-01-01T00:00:00.000Z",
            "timeCreated": "2026-01-01T00:00:00.000Z",
        }

    def listing(self, ask: dict[str, str]) -> dict:
        """All in one page."""
        prefix, delimiter = ask.get("prefix", ""), ask.get("delimiter")
        items, prefixes = [], {}
        for name in sorted(self.objects):
            below = name.removeprefix(prefix)
            if not name.startswith(prefix) or name < ask.get("startOffset", ""):
                continue
            if "endOffset" in ask and name >= ask["endOffset"]:
                continue
            if delimiter and delimiter in below:
                prefixes[prefix + below.split(delimiter)[0] + delimiter] = None
            else:
                items.append(self.about(name))
        return {"kind": "storage#objects", "items": items, "prefixes": list(prefixes)}


class _Handler(BaseHTTPRequestHandler):
    bucket: Bucket
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.answer(self.get)

    def do_POST(self):
        self.answer(self.post)

    def do_DELETE(self):
        self.answer(self.delete)

    def answer(self, act) -> None:
        url = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        ask = {key: values[0] for key, values in parse_qs(url.query).items()}
        bucket, _, rest = url.path.partition("/b/")[2].partition("/")
        name = unquote(rest.removeprefix("o").removeprefix("/"))
        with self.bucket.lock:
            self.bucket.requests.append(f"{self.command} {unquote(self.path)}")
            status, content, headers = (404, b"", {})
            if bucket == NAME:
                status, content, headers = act(name, ask, body)
        if isinstance(content, dict):
            content = json.dumps(content).encode()
            headers = headers | {"Content-Type": "application/json"}
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refused(self, name: str, ask: dict[str, str]) -> int | None:
        """The status, if the object is not of the generation asked for."""
        stored = self.bucket.objects.get(name)
        generation = str(stored.generation if stored else 0)
        if ask.get("ifGenerationMatch", generation) != generation:
            return 412
        if ask.get("ifGenerationNotMatch") == generation:
            return 304 if self.command == "GET" else 412
        return None

    def get(self, name, ask, body):
        if not name and not urlsplit(self.path).path.endswith("/o"):
            return 200, {"kind": "storage#bucket", "name": NAME}, {}
        if not name:
            return 200, self.bucket.listing(ask), {}
        if name not in self.bucket.objects:
            return 404, b"No such object", {}
        if refused := self.refused(name, ask):
            return refused, b"", {}
        if ask.get("alt") != "media":
            return 200, self.bucket.about(name), {}
        content, generation = self.bucket.objects[name]
        headers = {"x-goog-generation": str(generation)}
        wanted = self.headers.get("Range", "")
        if not wanted:
            return 200, content, headers
        first, last = wanted.removeprefix("bytes=").split("-")
        begin = int(first) if first else max(0, len(content) - int(last))
        end = int(last) + 1 if first and last else len(content)
        part = content[begin:end]
        if not part:
            return 416, b"", headers
        headers["Content-Range"] = f"bytes {begin}-{begin + len(part) - 1}/{len(content)}"
        return 206, part, headers

    def post(self, name, ask, body):
        if "uploadType" in ask:
            return self.upload(ask, body)
        for verb in ("/moveTo/o/", f"/rewriteTo/b/{NAME}/o/"):
            source, found, target = name.partition(verb)
            if not found:
                continue
            if source not in self.bucket.objects:
                return 404, b"No such object", {}
            self.bucket.put(target, self.bucket.objects[source].content)
            if "moveTo" in verb:
                del self.bucket.objects[source]
                return 200, self.bucket.about(target), {}
            return 200, {"done": True, "resource": self.bucket.about(target)}, {}
        return 501, b"", {}

    def upload(self, ask, body):
        upload, name = ask["uploadType"], ask.get("name")
        if upload == "multipart":
            boundary = b"\n--==0=="  # gcsfs's
            about, body = (b"\n" + body).split(boundary, 2)[1:]
            name = json.loads(about.partition(b"\n\n")[2])["name"]
            body = body.partition(b"\n\n")[2].removesuffix(boundary + b"--")
        elif upload == "resumable" and "upload_id" not in ask:
            number = next(self.bucket.generations)
            address = f"http://{self.headers['Host']}{self.path}&upload_id={number}"
            return 200, b"", {"Location": address}
        elif upload == "resumable":
            body = self.bucket.uploads.pop(ask["upload_id"], b"") + body
            if self.headers["Content-Range"].endswith("/*"):
                self.bucket.uploads[ask["upload_id"]] = body
                return 308, b"", {"Range": f"bytes=0-{len(body) - 1}"}
        if refused := self.refused(name, ask):
            return refused, b"", {}
        self.bucket.put(name, body)
        return 200, self.bucket.about(name), {}

    def delete(self, name, ask, body):
        if name not in self.bucket.objects:
            return 404, b"No such object", {}
        if refused := self.refused(name, ask):
            return refused, b"", {}
        del self.bucket.objects[name]
        return 204, b"", {}

    def log_message(self, *_):
        pass
