"""A headless Chromium for tests, driven through chromedriver by HTTP: W3C WebDriver."""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how the protocol writes a reference
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


class Missing(Exception):
    """There is no browser, said in a sentence."""


class Browser:
    """One window. `close` ends it and the driver."""

    def __init__(self, folder: Path):
        driver = shutil.which("chromedriver")
        program = next(filter(None, map(shutil.which, CHROMIUM)), None)
        if driver is None or program is None:
            raise Missing("there is no chromium with chromedriver; launch/browser.sh installs them")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._address = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            [driver, f"--port={port}", f"--log-path={folder / 'driver.log'}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"HOME": str(folder)},
        )
        arguments = ["--headless=new", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        arguments += [f"--user-data-dir={folder / 'profile'}", "--disable-dev-shm-usage"]
        if os.geteuid() == 0:
            arguments.append("--no-sandbox")  # which root cannot have
        options = {"binary": program, "args": arguments}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options}
        wanted["goog:loggingPrefs"] = {"browser": "ALL", "performance": "ALL"}
        try:
            self._wait()
            answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except RuntimeError as error:
            self._end()
            raise Missing(f"chromium does not start: {error}") from None
        except BaseException:
            self._end()
            raise
        self._session = f"/session/{answer['sessionId']}"
        self.command("url", {"url": "about:blank"})
        self.requests()  # of the page that a new window shows

    def _wait(self) -> None:
        for _ in range(150):
            try:
                return self._call("GET", "/status")
            except (OSError, urllib.error.URLError):
                time.sleep(0.1)
        raise Missing("chromedriver does not answer")

    def _call(self, method: str, path: str, content: Any = None) -> Any:
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self._address + path, data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise RuntimeError(f"{said['error']}: {said['message'].splitlines()[0]}") from None

    def command(self, name: str, content: Any) -> Any:
        return self._call("POST", f"{self._session}/{name}", content)

    def devtools(self, name: str, **parameters: Any) -> Any:
        """A command of Chrome's own protocol."""
        return self.command("goog/cdp/execute", {"cmd": name, "params": parameters})

    def open(self, path: Path) -> None:
        self.go(path.absolute().as_uri())

    def go(self, address: str) -> None:
        self.command("url", {"url": address})

    def size(self, width: int, height: int) -> None:
        """The size of the page, not of the window, which cannot be narrower than a minimum."""
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def prefer(self, **features: str) -> None:
        """Media features: prefers_color_scheme="dark"."""
        pairs = [{"name": k.replace("_", "-"), "value": v} for k, v in features.items()]
        self.devtools("Emulation.setEmulatedMedia", features=pairs)

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a JavaScript expression; arguments are `a[0]`, `a[1]`, ..."""
        script = f"const a = arguments; return ({script});"
        return self.command("execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        found = self.command("element", {"using": "css selector", "value": selector})
        self.command(f"element/{found[ELEMENT]}/click", {})

    def keys(self, selector: str, text: str) -> None:
        found = self.command("element", {"using": "css selector", "value": selector})
        self.command(f"element/{found[ELEMENT]}/value", {"text": text})

    def until(self, script: str, seconds: float = 10) -> Any:
        """Wait for an expression to be true."""
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds} s: {script}")
            time.sleep(0.05)
        return value

    def console(self) -> list[str]:
        """What was said on the console since the last time."""
        return [entry["message"] for entry in self.command("se/log", {"type": "browser"})]

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last time."""
        entries = self.command("se/log", {"type": "performance"})
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            message["params"]["request"]["url"]
            for message in messages
            if message["method"] == "Network.requestWillBeSent"
        ]

    def picture(self, path: Path, selector: str | None = None) -> None:
        """A screenshot of the page as it is seen, or of one element, as PNG."""
        place = "screenshot"
        if selector is not None:
            found = self.command("element", {"using": "css selector", "value": selector})
            place = f"element/{found[ELEMENT]}/screenshot"
        path.write_bytes(base64.b64decode(self._call("GET", f"{self._session}/{place}")))

    def close(self) -> None:
        try:
            self._call("DELETE", self._session)
        finally:
            self._end()

    def _end(self) -> None:
        self._driver.terminate()
        self._driver.wait()
