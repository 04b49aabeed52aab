"""A headless Chromium driven through chromedriver, by the WebDriver protocol over HTTP.

    with browser(width=1280, height=900) as page:
        page.open(path)
        page.run("return document.title")
        page.log()          # what the console said: [{"level", "message", ...}]

Pictures are drawn in software; nothing is fetched from a network.
"""

import json
import re
import shutil
import subprocess
import urllib.request
from base64 import b64decode
from contextlib import contextmanager
from tempfile import TemporaryDirectory

DRIVER = shutil.which("chromedriver")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

NEEDED = "needs Chromium and chromedriver on PATH"

PATIENCE = 300
"""Seconds after which a command is given up."""

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The protocol's word for an element."""


class Page:
    """One window."""

    def __init__(self, address):
        self.address = address

    def ask(self, method, path, body=None):
        """Send one command and return its value; an error of the page is raised with its words."""
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self.address + path, data=data, method=method, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from None

    def open(self, path, view=""):
        """Open a file and wait until the explorer is drawn, where there is one."""
        self.ask("POST", "/url", {"url": "about:blank"})
        self.ask("POST", "/url", {"url": f"{path.resolve().as_uri()}{view}"})
        self.until("!document.getElementById('explorer') || document.documentElement.dataset.ready")

    def run(self, script, *arguments):
        """Return what a function body returns; a promise is waited for."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def until(self, condition):
        """Wait until an expression is true, for at most `PATIENCE`."""
        waiting = "return (async () => { while (!(%s)) await new Promise((r) => setTimeout(r, 10)); })()"
        self.run(waiting % condition)

    def press(self, *keys):
        """Press keys, one after the other, in what has the focus."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})
        self.drawn()

    def click(self, selector, x=0, y=0):
        """Click (x, y) pixels from the middle of an element."""
        origin = self.ask("POST", "/element", {"using": "css selector", "value": selector})
        moves = [{"type": "pointerMove", "x": x, "y": y, "origin": {ELEMENT: origin[ELEMENT]}}]
        clicks = [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        self.ask("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves + clicks}]})
        self.drawn()

    def drawn(self):
        """Wait for two frames."""
        self.run("return new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(() => r())))")

    def text(self, selector):
        """Return the text of the first element found."""
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def log(self):
        """Return what the console said since the last call."""
        return self.ask("POST", "/se/log", {"type": "browser"})

    def picture(self):
        """Return what the window shows, as PNG."""
        return b64decode(self.ask("GET", "/screenshot"))


@contextmanager
def browser(*, width=1280, height=900, phone=False):
    """Start a browser and give its window; both end with the block."""
    command = [DRIVER, "--port=0"]
    with (
        TemporaryDirectory(prefix="allocsim-browser-", ignore_cleanup_errors=True) as profile,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as driver,
    ):
        try:
            ports = (re.search(r"started successfully on port (\d+)", line) for line in driver.stdout)
            root = Page(f"http://127.0.0.1:{next(port for port in ports if port)[1]}")
            flags = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={width},{height}"]
            options = {"binary": CHROMIUM, "args": [*flags, f"--user-data-dir={profile}"]}
            if phone:
                options["mobileEmulation"] = {"deviceMetrics": {"width": width, "height": height, "pixelRatio": 2}}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            wanted["timeouts"] = {"script": PATIENCE * 1000, "pageLoad": PATIENCE * 1000}
            session = root.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
            try:
                yield Page(f"{root.address}/session/{session}")
            finally:
                root.ask("DELETE", f"/session/{session}")
        finally:
            driver.terminate()
