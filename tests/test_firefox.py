"""The built pages in Firefox, headless, from ``file://``: another engine draws them, runs them and steps a slider.

Debian has no driver for Firefox, so this speaks WebDriver BiDi with it. ``ONEGPU_REQUIRE_BROWSER`` makes a missing Firefox a failure.
"""

import json
import os
import re
import shutil
import subprocess
import time
from itertools import count

import pytest
from websockets.sync.client import connect

from test_page import BOTH

NO_FIREFOX = "NO FIREFOX: its page tests did not run; install firefox-esr or firefox"
#: It can reach nothing but the disk, and asks nobody for updates, experiments or blocked sites.
SETTINGS = {"network.proxy.type": 1, "network.proxy.socks": "127.0.0.1", "network.proxy.socks_port": 9, "network.captive-portal-service.enabled": False,
            "app.normandy.enabled": False, "messaging-system.rsexperimentloader.enabled": False, "services.settings.server": "data:,none",
            "app.update.disabledForTesting": True, "browser.shell.checkDefaultBrowser": False, "datareporting.policy.dataSubmissionEnabled": False}
RIGHT = "\ue014"  # the arrow key, in WebDriver's own code points

#: Take the first slider that is shown and does something.
TAKE = """(async () => {
  const find = () => [...document.querySelectorAll(".onegpu input[type=range]")].find(e => !e.disabled && e.checkVisibility());
  for (let k = 0; !find() && k < 500; k++) await new Promise(done => setTimeout(done, 20));
  window.slider = find();
  slider.focus();
  window.results = () => [...slider.closest(".onegpu").querySelectorAll("output")].map(e => e.textContent).join("|");
  window.before = [slider.value, results()];
  return true;
})()"""
#: Whether the key moved the slider, and whether the results followed, within two seconds.
MOVED = """(async () => {
  const end = performance.now() + 2000, moved = () => [slider.value !== before[0], results() !== before[1]];
  while (moved().includes(false) && performance.now() < end) await new Promise(requestAnimationFrame);
  return moved().map(String).join();
})()"""


class Firefox:
    """A Firefox that is spoken to in WebDriver BiDi (https://www.w3.org/TR/webdriver-bidi/).

    Parameters
    ----------
    socket : websockets.sync.client.ClientConnection
        A connection to its session
    """

    def __init__(self, socket):
        self.socket, self.numbers, self.log = socket, count(1), []
        self.send("session.new", capabilities={})
        self.send("session.subscribe", events=["log.entryAdded"])
        self.page = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method, **params):
        """Give one command and wait for its answer; log entries that come before it are kept."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv(timeout=60))
            if message.get("method") == "log.entryAdded":
                self.log.append(message["params"])
            elif message.get("id") == number:
                assert message["type"] == "success", message
                return message["result"]

    def visit(self, address):
        """Open an address in place of what was there."""
        self.send("browsingContext.navigate", context=self.page, url="about:blank", wait="complete")
        self.log.clear()
        self.send("browsingContext.navigate", context=self.page, url=address, wait="complete")

    def run(self, script):
        """The value of a JavaScript expression in the page."""
        answer = self.send("script.evaluate", expression=script, target={"context": self.page}, awaitPromise=True)
        assert answer["type"] == "success", answer
        return answer["result"].get("value")

    def press(self, key):
        """Press and release a key."""
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.send("input.performActions", context=self.page, actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def errors(self):
        """What the page logged as an error: what nobody caught, and what a script called one."""
        self.run("new Promise(done => setTimeout(done, 50))")
        early = "Invalid markup: Incorrect number of children"  # of an equation that has been read in part
        return [entry["text"] for entry in self.log if entry["level"] == "error" and not entry["text"].startswith(early)]


def start(program, profile):
    """Start Firefox with a profile of its own: its process, and the address at which it listens."""
    (profile / "user.js").write_text("".join(f"user_pref({json.dumps(k)}, {json.dumps(v)});\n" for k, v in SETTINGS.items()), "utf-8")
    log = profile / "log"  # a file, since a pipe that nobody empties would stop it
    with log.open("w") as output:
        process = subprocess.Popen([program, "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", profile], stdout=output, stderr=output)
    for _ in range(600):
        if found := re.search(r"WebDriver BiDi listening on (ws://\S+)", log.read_text("utf-8", "replace")):
            return process, found[1]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    raise RuntimeError(f"{program} did not listen:\n{log.read_text('utf-8', 'replace')}")


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    """One headless Firefox."""
    program = next(filter(None, map(shutil.which, ("firefox-esr", "firefox"))), None)
    if program is None:
        (pytest.fail if os.environ.get("ONEGPU_REQUIRE_BROWSER") else pytest.skip)(NO_FIREFOX)
    process, address = start(program, tmp_path_factory.mktemp("firefox"))
    try:
        with connect(f"{address}/session", max_size=None) as socket:
            yield Firefox(socket)
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.mark.parametrize("path", BOTH)
def test_a_page(firefox, site, path):
    """It logs no error."""
    firefox.visit((site / path).as_uri())
    assert firefox.errors() == []


#: Where the link to a language leads when it has followed.
FOLLOW = """new Promise(done => setTimeout(done, 500)).then(() => document.querySelector(".btn-language-%s").href)"""


def test_a_slider_and_the_other_edition(firefox, site):
    """The arrow key moves a slider and a result with it, and the link to the other language takes the question along."""
    firefox.visit((site / "chapters" / "05-decide.html").as_uri())
    assert firefox.run(TAKE)
    firefox.press(RIGHT)
    assert firefox.run(MOVED) == "true,true"
    shown = "[slider.dataset.name, slider.value].join()"
    moved, address = firefox.run(shown), firefox.run(FOLLOW % "zh")
    assert "/zh/chapters/05-decide.html?" in address
    firefox.visit(address)
    assert firefox.run(TAKE) and firefox.run(shown) == moved
    assert firefox.errors() == []


def test_the_search(firefox, site):
    """It finds a symbol by its name from the disk, without an error."""
    firefox.visit((site / "search.html").as_uri() + "?q=kernel_efficiency")
    found = firefox.run("""(async () => {
      const links = () => [...document.querySelectorAll("#search-results li a")].map(a => a.getAttribute("href"));
      for (let k = 0; k < 200 && !links().length; k++) await new Promise(done => setTimeout(done, 20));
      return links().join(" ");
    })()""")
    assert "symbols.html#symbol-kernel_efficiency" in found
    assert firefox.errors() == []


def test_an_error_is_seen(firefox):
    """The tests above would notice one."""
    firefox.visit("data:text/html,<script>console.error('logged'); setTimeout(() => nowhere(), 0)</script>")
    text = " ".join(firefox.errors())
    assert "logged" in text and "nowhere" in text
