"""browsers.py FOLDER TIMES: what ci/browsers.sh runs as an ordinary user. The command is in FOLDER.

The page comes from a server here, which holds an image of it back until the page has shown what its
worker drew. A browser takes its picture when all images are there, so no picture comes too early.
"""

import http.server
import importlib.util
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib

PAGE = b"""<!doctype html><title>Locks</title>
<style>
body { margin: 20px; font: 18px/1.4 sans-serif; background: linear-gradient(120deg, #fed, #acf) }
h1 { color: #204080; text-shadow: 2px 2px 3px #888; transform: rotate(-2deg) }
ul { columns: 3; border: 3px dashed teal; border-radius: 14px; padding: 1em 2em }
li:nth-child(odd) { font-family: monospace; background: rgba(255, 255, 0, .4) }
</style>
<h1>Quick brown foxes</h1>
<ul></ul>
<canvas width=500 height=240></canvas>
<img src=gate.png width=8 height=8>
<script>
for (let i = 0; i < 30; i++)
    document.querySelector('ul').append(Object.assign(document.createElement('li'),
        { textContent: 'row ' + i * i * 7919 % 1000 }))
const paper = document.querySelector('canvas').getContext('2d')
// Several, so that they contend.
const workers = [0, 1, 2, 3].map(n => new Promise(drawn => {
    const worker = new Worker('worker.js')
    worker.onmessage = ({ data }) => drawn(paper.putImageData(data, n * 125, 0))
    worker.postMessage(n)
}))
Promise.all(workers).then(() => fetch('drawn'))
</script>
"""
WORKER = b"""onmessage = ({ data: n }) => {
    const picture = new ImageData(120, 240)
    for (let y = 0; y < 240; y++)
        for (let x = 0; x < 120; x++) {
            let a = 0, b = 0, steps = 0
            for (; steps < 200 && a * a + b * b < 4; steps++)
                [a, b] = [a * a - b * b + (n * 125 + x) / 170 - 2.1, 2 * a * b + y / 120 - 1]
            picture.data.set([steps * 7, steps * 3, 255 - steps, 255], (y * 120 + x) * 4)
        }
    postMessage(picture)
}
"""


def png(colour):
    """A picture of one pixel."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(b"\0" + colour)) + chunk(b"IEND", b""))


def pixels(path):
    """The size and the lines of a PNG, as its encoder filtered them."""
    with open(path, "rb") as file:
        data = file.read()
    at, header, lines = 8, b"", b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        header += body if kind == b"IHDR" else b""
        lines += body if kind == b"IDAT" else b""
        at += 12 + length
    return header, zlib.decompress(lines)


drawn = {}


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        run, _, name = self.path.lstrip("/").partition("/")
        event = drawn.setdefault(run, threading.Event())
        kind, body = "text/plain", b""
        if name == "page.html":
            kind, body = "text/html", PAGE
        elif name == "worker.js":
            kind, body = "text/javascript", WORKER
        elif name == "drawn":
            event.set()
        elif name == "gate.png":
            event.wait()
            kind, body = "image/png", png(b"\x20\xa0\x40")
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


# A program that shows pages itself, as Electron programs do, grabs only the canvas.
EMBEDS = """
import base64, sys
from PyQt5.QtCore import QUrl
from PyQt5.QtWidgets import QApplication
from PyQt5.QtWebEngineWidgets import QWebEnginePage
app = QApplication(sys.argv[:1])
page = QWebEnginePage()
def take(data):
    open(sys.argv[1], "wb").write(base64.b64decode(data.split(",")[1]))
    app.exit()
page.loadFinished.connect(
    lambda _: page.runJavaScript("document.querySelector('canvas').toDataURL()", take))
page.load(QUrl(sys.argv[2]))
sys.exit(app.exec())
"""
BROWSERS = {
    "firefox-esr": lambda shot: ["firefox-esr", "--headless", "--screenshot", shot],
    "chromium": lambda shot: ["chromium", "--headless", f"--screenshot={shot}"],
}
if importlib.util.find_spec("PyQt5") and importlib.util.find_spec("PyQt5.QtWebEngineWidgets"):
    BROWSERS["QtWebEngine"] = lambda shot: ["python3", "-c", EMBEDS, shot]
else:
    print("WARNING: python3-pyqt5.qtwebengine is missing: QtWebEngine is NOT run")
LIMIT = 60


def picture(work, port, browser, before, name):
    """Runs the browser once. Its pixels, or why there are none."""
    run = f"{browser}-{name}"
    home, shot, said = (f"{work}/{run}", f"{work}/{run}.png", f"{work}/{run}.txt")
    os.mkdir(home, 0o700)
    command = before + BROWSERS[browser](shot) + [f"http://127.0.0.1:{port}/{run}/page.html"]
    # Short-lived files are in this folder, too, because profiles have locks there.
    variables = {"HOME": home, "TMPDIR": home, "XDG_RUNTIME_DIR": home, "QT_QPA_PLATFORM": "offscreen"}
    with open(said, "wb") as out:
        process = subprocess.Popen(command, env=os.environ | variables, cwd=home, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=out, start_new_session=True)
    try:
        status = process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        status = f"none after {LIMIT} s"
    finally:
        # Ends the processes that the browser has left behind, or the browser if it hangs.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        shown = drawn.setdefault(run, threading.Event())
        came = shown.is_set()
        shown.set()
    shutil.rmtree(home, ignore_errors=True)
    if status != 0 or not came or not os.path.exists(shot):
        with open(said, errors="replace") as out:
            return None, f"status {status}; it says: {' | '.join(out.read().splitlines()[-3:])}"
    return pixels(shot), ""


def main(work, times):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.daemon_threads = True
    # A browser may close the connection once it has its picture.
    server.handle_error = lambda *_: None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port, failed, kinlock = server.server_address[1], False, f"{work}/kinlock"
    modes = {"run": [], "run --report": [f"--report={work}/report"], "run --standby": ["--standby"]}
    for browser in BROWSERS:
        wanted, why = picture(work, port, browser, [], "plain")
        again, why_again = picture(work, port, browser, [], "plain-again")
        if wanted is None or again is None:
            sys.exit(f"{browser} without kinlock: {why or why_again}")
        if wanted != again:
            sys.exit(f"{browser} without kinlock draws twice, and differently")
        for number, (mode, options) in enumerate(modes.items()):
            right, begun = 0, time.monotonic()
            for n in range(times):
                got, why = picture(work, port, browser, [kinlock, "run", *options, "--"], f"{number}-{n}")
                right += got == wanted
                if got != wanted:
                    print(f"FAILED: {browser} under {mode}: {why or 'other pixels'}", flush=True)
            print(f"{browser} under {mode}: the same pixels {right} of {times} times, in "
                  f"{time.monotonic() - begun:.0f} s", flush=True)
            failed |= right < times
    sys.exit(failed)


main(sys.argv[1], int(sys.argv[2]))
