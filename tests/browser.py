"""The system's Chromium without a window, spoken to over a pipe: no driver, no download, only the standard library.

`--remote-debugging-pipe` makes Chromium read commands from file descriptor 3 and write answers to 4, as JSON texts that
end in a zero byte (the DevTools protocol).
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip
# A small program that becomes Chromium: our two ends get the numbers 3 and 4, whatever they had. (A function between
# fork and exec would do the same, but is not safe where there are threads.)
LAUNCH = """
import fcntl, os, sys
ends = [fcntl.fcntl(int(end), fcntl.F_DUPFD, 10) for end in sys.argv[1:3]]
for number, end in zip((3, 4), ends):
    os.dup2(end, number)
os.execv(sys.argv[3], sys.argv[3:])
"""
PATIENCE = 300.0  # seconds until an answer that does not come is an error; a loaded machine is slow


def executable():
    """The system's Chromium; the test is skipped, with the reason, where there is none."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no Chromium on this machine (looked for {', '.join(NAMES)}); apt-get install chromium")
    return found


class Browser:
    """One Chromium for several pages; closes with the `with` block."""

    def __enter__(self):
        binary = executable()
        self.profile = tempfile.TemporaryDirectory(prefix="toprank-chromium-", ignore_cleanup_errors=True)
        command = [binary, *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        theirs_in, self.commands = os.pipe()
        self.answers, theirs_out = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(theirs_in), str(theirs_out), *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.numbers, self.buffer, self.events = itertools.count(1), b"", []
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, RuntimeError):
            self.call("Browser.close")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.commands)
        os.close(self.answers)
        self.profile.cleanup()

    def call(self, method, session=None, **parameters):
        """Send a command and wait for its answer; events on the way are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE
        while (answer := self._next(deadline)).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_for(self, method, session):
        """The next event of this name."""
        deadline = time.monotonic() + PATIENCE
        while not any(event.get("method") == method and event.get("sessionId") == session for event in self.events):
            self.events.append(self._next(deadline))

    def _next(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, deadline - time.monotonic()))
            read = os.read(self.answers, 1 << 20) if ready else b""
            if not read:
                raise RuntimeError("Chromium does not answer" if self.process.poll() is None else "Chromium has ended")
            self.buffer += read
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def open(self, path, width=1400, height=900, dark=False):
        """A page from a file, as a double click would open it; or from a service, by its address."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        address = path if isinstance(path, str) else path.resolve().as_uri()
        page = Page(self, session, address if isinstance(path, str) else "file:")
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.prefer("dark" if dark else "light")
        page.call("Page.navigate", url=address)
        self.wait_for("Page.loadEventFired", session)
        return page


class Page:
    """One tab."""

    def __init__(self, browser, session, home):
        self.browser, self.session, self.home = browser, session, home

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def resize(self, width, height):
        narrow = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=narrow)

    def prefer(self, scheme):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def run(self, expression):
        """The value of a JavaScript expression; an error in it is an error here."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", "JavaScript failed"))
        return answer["result"].get("value")

    def press(self, key, code=None, text=None):
        """A key, down and up, as a person would press it."""
        codes = {"ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "Enter": 13, "Escape": 27, "Home": 36, "End": 35, "/": 191}
        base = {"key": key, "code": code or key, "windowsVirtualKeyCode": codes.get(key, 0)}
        typed = {"text": text} if text is not None else {}
        self.call("Input.dispatchKeyEvent", type="keyDown" if typed else "rawKeyDown", **base, **typed)
        self.call("Input.dispatchKeyEvent", type="keyUp", **base)

    def type(self, words):
        self.call("Input.insertText", text=words)

    def point_at(self, selector):
        """Move the pointer to the middle of an element."""
        x, y = self.run(
            "(async e => { e.scrollIntoView({block: 'center', behavior: 'instant'});"
            " for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);"  # the scroll event comes first
            " const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })"
            f"(document.querySelector({json.dumps(selector)}))"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path, whole=True):
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **(self._whole() if whole else {}))
        path.write_bytes(base64.b64decode(shot["data"]))

    def _whole(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def complaints(self):
        """Everything that the console would show in red or yellow, and every request to elsewhere."""
        self.run("0")  # events before this answer have arrived
        found = []
        for event in self.browser.events:
            if event.get("sessionId") != self.session:
                continue
            name, what = event["method"], event["params"]
            if name == "Runtime.exceptionThrown" or (
                name == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert")
            ):
                found.append(json.dumps(what)[:500])
            elif name == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                found.append(what["entry"]["text"])
            elif name == "Network.requestWillBeSent" and not what["request"]["url"].startswith(self.home):
                found.append(f"request to {what['request']['url']}")
        return found
