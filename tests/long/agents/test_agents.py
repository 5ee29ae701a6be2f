"""Unmodified coding agents against a router with two simulated engines, set up as docs/clients.md says.

Each agent has a home directory of its own and reaches nothing but the router.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "clients"))

import stack as stacks  # noqa: E402

AGENTS = pathlib.Path(os.environ["LLM_ROUTER_TEST_AGENTS"])
MODEL = "sim"
# An agent that hangs fails its test.
TURN_SECONDS = 90


class Agent:
    """One agent. `command` runs one turn of a conversation."""

    # Where the router finds the session.
    source = None
    # How much of a turn's prompt the next one begins with, at least.
    shared = 0.9

    def __init__(self, world, home):
        self.home, self.work = home, home / "work"
        self.work.mkdir()
        self.base = f"{world.router.url}/chat"
        self.configure()

    def configure(self):
        """Writes the agent's files."""

    def environment(self):
        return {}

    def command(self, text, is_first):
        raise NotImplementedError

    def start(self, text, is_first=True):
        # A proxy that refuses keeps the agent from the network; the router is reached without it.
        nowhere = "http://127.0.0.1:9"
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TERM": "dumb",
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            **self.environment(),
        }
        command = [str(part) for part in self.command(text, is_first)]
        return subprocess.Popen(
            command,
            cwd=self.work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )

    def turn(self, text, is_first=True):
        """The output of one turn, and its exit status."""
        process = self.start(text, is_first)
        try:
            output, _ = process.communicate(timeout=TURN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"no end of the turn; its output:\n{output}")
        return output, process.returncode


class ClaudeCode(Agent):
    source = "header.x-claude-code-session-id"

    def environment(self):
        return {
            "ANTHROPIC_BASE_URL": self.base,
            "ANTHROPIC_AUTH_TOKEN": stacks.KEY,
            "ANTHROPIC_MODEL": MODEL,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }

    def command(self, text, is_first):
        return [AGENTS / "node_modules/.bin/claude", *([] if is_first else ["--continue"]), "-p", text]


class Codex(Agent):
    source = "header.session-id"

    def configure(self):
        (self.home / ".codex").mkdir()
        (self.home / ".codex" / "config.toml").write_text(
            f'model = "{MODEL}"\nmodel_provider = "fleet"\n\n[model_providers.fleet]\nname = "fleet"\n'
            f'base_url = "{self.base}/v1"\nenv_key = "FLEET_KEY"\nwire_api = "responses"\n'
        )

    def environment(self):
        return {"FLEET_KEY": stacks.KEY}

    def command(self, text, is_first):
        return [AGENTS / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", *([] if is_first else ["resume", "--last"]), text]


class Opencode(Agent):
    source = "header.x-session-id"

    def configure(self):
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{self.base}/v1", "apiKey": stacks.KEY},
            "models": {MODEL: {}},
        }
        (self.work / "opencode.json").write_text(json.dumps({"provider": {"fleet": provider}, "model": f"fleet/{MODEL}"}))

    def command(self, text, is_first):
        return [AGENTS / "node_modules/.bin/opencode", "run", *([] if is_first else ["--continue"]), text]


class Aider(Agent):
    source = "header.x-session-id"
    # It puts its instructions into the newest message.
    shared = 0.3

    def configure(self):
        # Aider names no session by itself.
        settings = [{"name": f"openai/{MODEL}", "extra_params": {"extra_headers": {"x-session-id": "aider-test"}}}]
        (self.work / ".aider.model.settings.yml").write_text(json.dumps(settings))

    def environment(self):
        return {"OPENAI_API_BASE": f"{self.base}/v1", "OPENAI_API_KEY": stacks.KEY}

    def command(self, text, is_first):
        quiet = ["--no-git", "--yes-always", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-show-release-notes"]
        restore = [] if is_first else ["--restore-chat-history"]
        return [AGENTS / "venv/bin/aider", "--model", f"openai/{MODEL}", *quiet, *restore, "--message", text]


class World:
    """Two engines that end their answers by themselves, and a router."""

    def __init__(self):
        flags = ("--port", "0", "--ttft", "5ms", "--itl", "2ms", "--slots", "8")
        self.engines = [stacks.Program(stacks.BIN / "llmctl", "engine", *flags) for _ in range(2)]
        self.urls = [engine.wait_for(r"engine .*(http://[^\s(]+)").group(1) for engine in self.engines]
        peers = ", ".join(f"{{address: '{stacks.address(url)}'}}" for url in self.urls)
        self.router = stacks.Router({"chat": f"peers: [{peers}]\n"})

    def stop(self):
        self.router.stop()
        for engine in self.engines:
            engine.stop()

    def faults(self, *faults):
        for url in self.urls:
            data = json.dumps({"faults": faults}).encode()
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(urllib.request.Request(f"{url}/sim/faults", data), timeout=10).close()

    def conversation(self):
        """The receipts of what was generated, oldest first."""
        found = json.loads(stacks.get(self.router.admin + "/_decisions?n=1000"))["decisions"]
        found = [receipt for receipt in found if receipt["method"] == "POST"]
        return sorted(found, key=lambda receipt: receipt["at_unix_ms"])

    def is_waiting(self):
        page = stacks.get(self.router.admin + "/metrics").splitlines()
        return any(line.startswith("llm_router_in_flight{") and not line.endswith(" 0") for line in page)

    def left(self):
        return any(receipt["client_gone"] for receipt in self.conversation())


@pytest.fixture
def world():
    world = World()
    yield world
    world.stop()


@pytest.mark.parametrize("kind", [ClaudeCode, Codex, Opencode, Aider])
def test_turns_share_an_engine_and_its_cache_and_failures_are_shown(kind, world, tmp_path):
    agent = kind(world, tmp_path)
    for text, is_first in (("Tell me about the sea", True), ("And then?", False)):
        output, status = agent.turn(text, is_first)
        assert status == 0 and "The quick brown fox" in output, output
    *earlier, last = world.conversation()
    longest = max(receipt["usage"]["prompt"] for receipt in earlier)
    assert last["usage"]["cached"] >= agent.shared * longest, (earlier, last)

    world.faults("400")
    output, _ = agent.turn("Now fail", is_first=False)
    assert "Simulated fault" in output and "Traceback" not in output, output

    world.faults("hang")
    process = agent.start("Now wait", is_first=False)
    stacks.until("the engine to get the turn", world.is_waiting)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    stacks.until("the engine to see that the agent left", world.left)

    world.faults()
    output, status = agent.turn("Once more", is_first=False)
    assert status == 0 and "The quick brown fox" in output, output
    receipts = world.conversation()
    assert {receipt["source"] for receipt in receipts} == {agent.source}
    assert len({receipt["session"] for receipt in receipts}) == 1
    assert len({attempt["peer"] for receipt in receipts for attempt in receipt["attempts"]}) == 1
