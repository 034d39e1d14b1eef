"""`watch`: pages that follow their runs, in a real browser; and nothing but those pages."""

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from browser import Browser, Missing
from gcs_server import Bucket
from report_runs import make_run

from istanas_jax.cli.main import main
from istanas_jax.look.report import serving


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    try:
        found = Browser(tmp_path_factory.mktemp("browser"))
    except Missing as missing:
        pytest.skip(str(missing))
    yield found
    found.close()


@contextmanager
def served(folder, port=0):
    """The address of a server of this folder, which looks often."""
    server = serving.serve(folder, port)
    server.RequestHandlerClass.runs.seconds = 0.2
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read(address, **headers):
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def add_epoch(run, epoch):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    with open(run / "metrics.jsonl", "a") as file:
        file.write(json.dumps(rows[-1] | {"epoch": epoch, "step": 10**6 + epoch}) + "\n")


@pytest.mark.slow
def test_a_page_follows_its_run_to_the_end_and_further(browser, tmp_path):
    """Also while the server is away: it is started again on the same port."""
    run = make_run(tmp_path / "runs" / "digits", finished=False)
    result = make_run(tmp_path / "other") / "result.json"
    with open(run / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as a run that is going on does
        with served(run) as address:
            browser.go(address)
            state = "document.querySelector('.state').textContent"
            assert browser.run(state) == "running"
            add_epoch(run, 3)
            browser.until("document.body.textContent.includes('3 of 4')")
    port = int(address.rsplit(":", 1)[1])
    add_epoch(run, 4)  # while nobody looks
    with served(run, port):
        browser.until("document.body.textContent.includes('4 of 4')")
        browser.until(f"{state} === 'not finished'")
        shutil.copy(result, run)
        browser.until(f"{state} === 'finished'")
        (run / "config.json").rename(run / "away")  # for a moment there is no run
        browser.until("document.body.textContent.includes('There is no page at the moment')")
        (run / "away").rename(run / "config.json")
        browser.until(f"document.querySelector('.state') && {state} === 'finished'")
    said = [line for line in browser.console() if "ERR_CONNECTION_REFUSED" not in line]
    assert said == []  # apart from the time without a server


def test_a_folder_of_runs(browser, tmp_path):
    for name in ("one", "two & half"):
        make_run(tmp_path / name)
    browser.go("about:blank")
    browser.console(), browser.requests()
    with served(tmp_path) as address:
        browser.go(address)
        rows = "[...document.querySelectorAll('tbody a')].map((a) => a.textContent)"
        assert browser.run(rows) == ["one", "two & half"]
        make_run(tmp_path / "three")
        browser.until(f"({rows}).length === 3")
        browser.click("tbody tr:nth-child(3) a")
        browser.until("document.querySelector('h1').textContent === 'two & half'")
        assert browser.console() == []
        assert all(request.startswith((address, "data:")) for request in browser.requests())
    browser.go("about:blank")


def test_only_pages_are_served(tmp_path):
    folder = tmp_path / "runs"
    run = make_run(folder / "one")
    make_run(tmp_path / "outside")
    os.symlink(tmp_path / "outside", folder / "linked")
    (folder / "secret.txt").write_text("secret")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    with served(folder) as address:
        for path in ("", "one/report.html", "one/version", "version"):
            status, text = read(f"{address}/{path}")
            assert status == 200 and text
        assert "linked" not in read(address)[1]
        for path in (
            "secret.txt",
            "../outside/report.html",
            "..%2foutside%2freport.html",
            "%2e%2e/outside/report.html",
            "linked/report.html",
            "one/config.json",
            "one/../../outside/report.html",
            "./report.html",
            "one/one/report.html",
            str(run / "report.html"),
        ):
            assert read(f"{address}/{path}") == (404, "there is no such page"), path
        assert read(address, Host="evil.example")[0] == 403
        assert read(address, Host=f"localhost:{address.rsplit(':')[-1]}")[0] == 200
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_only_this_machine_can_ask(tmp_path):
    make_run(tmp_path / "run")
    server = serving.serve(tmp_path, 0)
    assert server.server_address[0] == "127.0.0.1"
    server.server_close()


def test_bad_input(tmp_path, capsys):
    def refused(*words):
        assert main(["watch", *map(str, words)]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    assert "holds no run, nor folders of runs" in refused(tmp_path)
    assert "is not a folder" in refused(tmp_path / "nowhere")
    make_run(tmp_path / "run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = refused(tmp_path, "--port", port)
        assert f"port {port} is in use or reserved: choose another --port" in said
    assert "port 70000 is none" in refused(tmp_path, "--port", 70000)


def test_the_command_ends_by_itself_if_asked(tmp_path, capsys):
    make_run(tmp_path / "run")
    assert main(["watch", str(tmp_path), "--port", "0", "--seconds", "0.1"]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_in_a_bucket(tmp_path, environment):
    """With gcsfs as for a real one; requirements-tpu.txt brings it."""
    pytest.importorskip("gcsfs", reason="gcsfs is not installed: requirements-tpu.txt brings it")
    run = make_run(tmp_path / "one")
    code = """
import sys, pathlib
from etils import epath
from istanas_jax.look.report.serving import Runs
target = epath.Path("gs://bucket/runs/one")
for file in pathlib.Path(sys.argv[1]).iterdir():
    (target / file.name).write_bytes(file.read_bytes())
runs = Runs("gs://bucket/runs")
assert "one" in runs.page("") and ">finished<" in runs.page("one")
before = runs.version("one")
(target / "result.json").unlink()
runs._versions.clear()
assert runs.version("one") != before
assert ">not finished<" in runs.page("one") and ">finished<" not in runs.page("one")
assert runs.find("two") is None
"""
    with Bucket() as bucket:
        variables = environment | bucket.environment
        subprocess.run([sys.executable, "-c", code, str(run)], env=variables, check=True)
