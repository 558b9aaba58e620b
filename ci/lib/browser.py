"""A browser without a window, for checks of pages: Chromium, spoken to through its debugging pipe.

    with Browser() as browser:
        page = browser.open(path, width=360, scheme="dark")
        page.evaluate("document.title")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome"]
# In seconds. What has not happened by then counts as never happening.
PATIENCE = 300


def find():
    """The path of a browser, or the end of this program."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    return found or sys.exit("no browser: install Debian's package chromium")


class Browser:
    """A browser that ends with its block."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        # The browser reads its descriptor 3 and writes its descriptor 4.
        their_input, self.output = os.pipe()
        self.input, their_output = os.pipe()
        command = [find(), "--headless", "--remote-debugging-pipe", "--no-first-run",
                   "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={self.folder.name}"]
        # Chromium's sandbox refuses to run as root, and containers often forbid it.
        command += ["--no-sandbox"] if os.geteuid() == 0 else []
        shell = f'exec "$@" 3<&{their_input} 4>&{their_output}'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "browser", *command], pass_fds=[their_input, their_output],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(their_input)
        os.close(their_output)
        self.number, self.rest, self.events = 0, b"", []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError):
            self.process.kill()
        self.process.wait()
        os.close(self.input)
        os.close(self.output)
        self.folder.cleanup()

    def read(self):
        """The next message."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            left = max(0, end - time.monotonic())
            if not select.select([self.input], [], [], left)[0]:
                raise RuntimeError("the browser does not answer")
            more = os.read(self.input, 1 << 16)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        """The result of a method; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self.output, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") != self.number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def open(self, path, **view):
        return Page(self, path, **view)


class Page:
    """A page in a window of that width, in the scheme `light` or `dark`, on `screen` or `print`."""

    def __init__(self, browser, path, width, scheme="light", media="screen"):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ["Page", "Network", "Runtime", "Log"]:
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                  deviceScaleFactor=1, mobile=width < 600)
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", media=media, features=[feature])
        browser.events.clear()
        self.call("Page.navigate", url=f"file://{os.path.abspath(path)}")
        while not any(event.get("method") == "Page.loadEventFired" for event in browser.events):
            browser.events.append(browser.read())

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def evaluate(self, script):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def happened(self, method):
        """The events of that kind since the page was opened."""
        return [event["params"] for event in self.browser.events if event.get("method") == method]

    def picture(self, path):
        """Keeps what the whole page looks like as a PNG."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
