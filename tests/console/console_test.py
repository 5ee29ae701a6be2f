"""The console in a real browser, over a real router and simulated engines.

Run by `tests/run`; needs Debian's chromium and LLM_ROUTER_TEST_BIN. Screenshots go to target/console.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import urllib.error
import urllib.request

from playwright.sync_api import expect, sync_playwright

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))

from stack import BIN, Program, free_port, until  # noqa: E402

SHOTS = BIN.parent / "console"
TOKEN = "console-test-token"
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
LONG = "route-with-a-name-of-sixty-characters-which-is-the-longest-one"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]


class Fleet:
    """A router with three routes: one that works, one of 200 peers, one that is broken."""

    def __enter__(self):
        self.engines = [
            Program(BIN / "llmctl", "engine", "--port", "0", "--ttft", "40ms", "--itl", "5ms", "--slots", "8")
            for _ in range(2)
        ]
        found = [engine.wait_for(r"engine .*http://([^\s(/]+)").group(1) for engine in self.engines]
        self.at = pathlib.Path(tempfile.mkdtemp(prefix="console-"))
        (self.at / "routes").mkdir()
        (self.at / "token").write_text(TOKEN)
        (self.at / "router.yaml").write_text(
            "server: {drain_delay: 0s, drain_timeout: 2s, admin_token_file: token}\n"
            "keys: {file: keys, on_missing: allow}\nroutes: routes/\n"
        )
        peers = "".join(f"  - {{address: '{address}', name: gpu-{at}, max_concurrency: 8}}\n" for at, address in enumerate(found))
        self.write("chat", f"ttft_limit_ms: 2000\npeers:\n{peers}")
        dead = free_port()
        many = "".join(f"  - {{address: '127.1.{n // 100}.{n % 100 + 1}:{dead}', name: rack-{n:03}, max_concurrency: 16}}\n" for n in range(200))
        self.write(LONG, f"peers:\n{many}")
        self.write("broken", "peers: 7\n")
        self.router = Program(
            BIN / "router", "--config", self.at / "router.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
            env={"NO_COLOR": "1"}, cwd=self.at,
        )
        ready = self.router.wait_for(r"router ready: public http://\S+:(\d+) admin http://\S+:(\d+)")
        self.public, self.admin = map(int, ready.groups())
        return self

    def write(self, name, text):
        (self.at / "routes" / f"{name}.yaml").write_text(text)

    def __exit__(self, *_):
        for program in [self.router, *self.engines]:
            program.stop()
        shutil.rmtree(self.at)

    def chat(self, session="session-1", model="sim"):
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "stream": True}
        return self.post(
            self.public, "/chat/v1/chat/completions", {"content-type": "application/json", "x-session-id": session}, json.dumps(body)
        )

    @staticmethod
    def post(port, path, headers, body=""):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body.encode(), headers, method="POST")
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as reply:
                reply.read()
                return reply.status
        except urllib.error.HTTPError as error:
            return error.code


ACCESSIBLE = """() => {
  const wrong = [];
  const name = (e) => (e.getAttribute('aria-label') || document.getElementById(e.getAttribute('aria-labelledby'))?.textContent
    || e.labels?.[0]?.textContent || e.closest('label')?.textContent || e.textContent || '').trim();
  for (const e of document.querySelectorAll('a, button, input, select, svg[role=img], [role=region]'))
    if (!name(e)) wrong.push('no name: ' + e.outerHTML.slice(0, 120));
  for (const one of ['main', 'header', 'nav', 'h1']) {
    const n = document.querySelectorAll(one).length;
    if (n !== 1) wrong.push(`${n} of ${one}`);
  }
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.filter((i) => i === id).length > 1) wrong.push('twice: ' + id);
  for (const e of document.querySelectorAll('th')) if (!e.scope) wrong.push('no scope: ' + e.textContent);
  if (!document.documentElement.lang) wrong.push('no lang');
  const canvas = document.createElement('canvas').getContext('2d');
  const rgb = (c) => { canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => c.slice(0, 3).map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [.2126, .7152, .0722][i], 0);
  for (const e of document.querySelectorAll('main *, header *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
    let back = e, color;
    do { color = getComputedStyle(back).backgroundColor; back = back.parentElement; } while (back && /, 0\\)$|transparent/.test(color));
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(rgb(color))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) wrong.push(`contrast ${((a + .05) / (b + .05)).toFixed(2)}: ${e.outerHTML.slice(0, 90)}`);
  }
  return wrong;
}"""


class Browser:
    def __init__(self, fleet, page):
        self.fleet, self.page = fleet, page
        self.home = f"http://127.0.0.1:{fleet.admin}/console/"
        self.errors = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)

    def go(self, view):
        # A fresh page: the last view must not pass for this one.
        self.page.goto("about:blank")
        self.page.goto(f"{self.home}#/{view}")
        self.page.locator("#state.ok").wait_for()

    def check(self, name):
        """No script error, nothing out of the page's width, accessible; with a picture."""
        assert self.page.evaluate(ACCESSIBLE) == [], name
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide"
        assert self.errors == [], name
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


def looks(fleet, browser):
    """Every view, dark and light, wide and narrow."""
    for scheme in ["dark", "light"]:
        for width, height, size in [(1280, 860, "wide"), (390, 844, "phone")]:
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": height})
            view = Browser(fleet, context.new_page())
            for path in ["fleet", "route/chat", f"route/{LONG}", "requests"]:
                view.go(path)
                if path == "requests":
                    view.page.locator("summary").first.click()
                view.check(f"{path.split('/')[-1][:5]}-{size}-{scheme}")
            context.close()


def live(fleet, browser):
    """A request appears without a reload; pause holds the page; script text stays text."""
    view = Browser(fleet, browser.new_page())
    view.go("requests")
    fleet.chat(session="session-live")
    expect(view.page.get_by_text("session-live (from")).to_have_count(1)
    fleet.chat(session=SCRIPT, model=SCRIPT)
    expect(view.page.get_by_text("<script>").first).to_be_visible()
    assert view.page.title() == "Requests · llm-router"
    view.page.get_by_label("Session").fill("session-live")
    expect(view.page.locator("summary")).to_have_count(1)
    expect(view.page.get_by_label("Session")).to_be_focused()
    view.page.get_by_role("button", name="Pause").click()
    fleet.chat(session="session-live")
    view.page.wait_for_timeout(2500)
    assert view.page.locator("summary").count() == 1
    view.page.get_by_role("button", name="Resume").click()
    expect(view.page.locator("summary")).to_have_count(2)
    assert view.errors == []
    view.page.close()


def switch(fleet, browser):
    """A switch: asked once, changed, shown as an override, audited, reset. A limit with a time to live."""
    view = Browser(fleet, browser.new_page())
    view.go("route/chat")
    turn = view.page.get_by_role("button", name="Turn affinity off")
    turn.click()
    expect(view.page.locator("#confirm .change")).to_have_text("on → off")
    view.page.get_by_role("button", name="Cancel").click()
    expect(turn).to_be_visible()
    assert fleet.router.count("admin change") == 0
    turn.click()
    view.page.get_by_role("button", name="Change").click()
    expect(view.page.get_by_role("button", name="Turn affinity on")).to_be_visible()
    fleet.router.wait_for(r"admin change.*loopback.*console.*/chat/_affinity_toggle.*200")
    view.page.get_by_label("TTFT limit").fill("1500")
    view.page.get_by_role("button", name="Set").first.click()
    view.page.get_by_label("For").select_option("900")
    view.page.get_by_role("button", name="Change").click()
    fleet.router.wait_for(r"admin change.*/chat/_ttft_limit.*200")
    view.go("fleet")
    expect(view.page.locator(".overrides li")).to_have_count(2)
    expect(view.page.locator(".overrides")).to_contain_text("14 min left")
    view.check("overrides")
    for what in ["affinity on chat", "ttft limit on chat"]:
        view.page.get_by_role("button", name=f"Reset {what}").click()
        view.page.get_by_role("button", name="Change").click()
        expect(view.page.get_by_role("button", name=f"Reset {what}")).to_have_count(0)
    view.page.close()


def protections(fleet, browser):
    """A foreign page cannot write; a rebound name sees and changes nothing; a wrong token is refused."""
    path = "/chat/_affinity_toggle?on=0"
    for headers in [
        {"origin": "http://evil.example"},
        {"origin": "http://evil.example", "x-llm-router-console": "1"},
        {"origin": f"http://127.0.0.1:{fleet.admin}"},
        {"host": "evil.example", "origin": "http://evil.example", "x-llm-router-console": "1"},
        {"sec-fetch-site": "cross-site"},
    ]:
        assert fleet.post(fleet.admin, path, headers) in (401, 403), headers
    # A page of another origin, in the browser itself: a form, and a script.
    page = browser.new_page()
    page.route("http://evil.example/**", lambda route: route.fulfill(
        content_type="text/html", body=f"<form method=post action='http://127.0.0.1:{fleet.admin}{path}'><button>win</button></form>"))
    page.goto("http://evil.example/")
    outcome = page.evaluate(
        """(url) => fetch(url, {method: 'POST', headers: {'x-llm-router-console': '1'}}).then(() => 'sent', () => 'refused')""",
        f"http://127.0.0.1:{fleet.admin}{path}",
    )
    assert outcome == "refused"
    page.get_by_role("button").click()
    expect(page.locator("body")).not_to_contain_text("win")
    page.close()
    # DNS rebinding: the name is the attacker's, the address is ours.
    rebound = browser.new_page()
    rebound.goto(f"http://rebound.test:{fleet.admin}/console/")
    expect(rebound.locator("#state")).to_have_text("no access")
    expect(rebound.locator("main")).not_to_contain_text("PROBLEMS")
    rebound.locator("#token-field").fill("wrong")
    rebound.get_by_role("button", name="Use", exact=True).click()
    expect(rebound.locator("#token-note")).to_have_text("The router refused this token.")
    rebound.locator("#token-field").fill(TOKEN)
    rebound.get_by_role("button", name="Use", exact=True).click()
    expect(rebound.locator("h1")).to_have_text("Fleet")
    assert rebound.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
    rebound.close()
    assert "\"enabled\":true" in get_text(fleet, "/chat/_affinity_toggle")


def get_text(fleet, path):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://127.0.0.1:{fleet.admin}{path}", timeout=10) as reply:
        return reply.read().decode()


def gone(fleet, browser):
    """A router that stops is reported."""
    view = Browser(fleet, browser.new_page())
    view.go("fleet")
    fleet.router.stop()
    expect(view.page.locator("#state.bad")).to_be_visible(timeout=10_000)
    view.page.close()


def test_the_console():
    with Fleet() as fleet, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*FLAGS, "--host-resolver-rules=MAP rebound.test 127.0.0.1"]
        )
        for n in range(24):
            fleet.chat(session=f"session-{n % 5}")
        until("the findings", lambda: "file_invalid" in get_text(fleet, "/_findings"))
        for part in [looks, live, switch, protections, gone]:
            part(fleet, browser)
        browser.close()
