"""A router with two engines behind it, for client suites in any language.

As a module: `with Stack("simulated") as stack: ...`. As a program: `stack.py simulated|llama`
prints one line of JSON once everything answers, then answers questions until its input ends.

Every process started here is ended here, by its own handle.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import reasoner  # noqa: E402

ROOT = HERE.parent.parent
BIN = pathlib.Path(os.environ.get("LLM_ROUTER_TEST_BIN", ROOT / "target" / "debug"))
CACHE = BIN.parent / "clients"
KEY = "sk-test"
HANDLERS = ["vllm_format", "strip_actual_usage"]
PATIENCE = 60.0
# Slow enough that a client can leave in mid-stream: about two hundred tokens a second.
LLAMA_LAYERS = 32


def until(what, look):
    """Looks until it finds something true, and returns it. `what` is a text, or what makes one at the end."""
    deadline = time.monotonic() + PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what() if callable(what) else what}")
        time.sleep(0.02)
    return found


class Program:
    """A child process whose output is kept."""

    def __init__(self, *command, env=None, cwd=None):
        self.lines = []
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
            cwd=cwd,
        )
        # Two pipes: in one, a line of the log could land in the middle of the ready line.
        streams = (self._process.stdout, self._process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(s,), daemon=True) for s in streams]
        for reader in self._readers:
            reader.start()

    def _read(self, stream):
        for line in stream:
            self.lines.append(line.rstrip("\n"))

    def _read_rest(self):
        for reader in self._readers:
            reader.join(1)

    def find(self, pattern):
        return next((m for line in list(self.lines) if (m := re.search(pattern, line))), None)

    def count(self, pattern):
        return sum(1 for line in list(self.lines) if re.search(pattern, line))

    def wait_for(self, pattern):
        """The match of the first line that fits; a program that ends first is an error."""

        def look():
            found = self.find(pattern)
            if found is None and self._process.poll() is not None:
                self._read_rest()
                if (found := self.find(pattern)) is None:
                    raise RuntimeError(f"ended without {pattern!r}:\n" + "\n".join(self.lines[-30:]))
            return found

        try:
            return until(f"a line {pattern!r}", look)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; its last lines:\n" + "\n".join(self.lines[-30:])) from None

    def suspend(self):
        """It stops in its tracks: its sockets accept, and nobody answers."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self):
        self._process.send_signal(signal.SIGCONT)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def stop(self):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._read_rest()


def get(url, headers=None):
    request = urllib.request.Request(url, headers=headers or {})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as reply:
        return reply.read().decode()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclasses.dataclass
class Simulated:
    """An engine of `llmctl engine`; its own counters say what it did."""

    program: Program
    url: str
    model = "sim"

    @classmethod
    def start(cls):
        program = Program(
            BIN / "llmctl", "engine", "--port", "0", "--ttft", "5ms", "--itl", "5ms", "--slots", "8", "--ignore-eos"
        )
        return cls(program, program.wait_for(r"engine .*(http://[^\s(]+)").group(1))

    def cancelled(self):
        return json.loads(get(self.url + "/sim/stats"))["cancelled"]


@dataclasses.dataclass
class Llama:
    """llama.cpp's own server with a model whose text is known; its log says what it did."""

    program: Program
    url: str
    model = "tiny"

    @classmethod
    def launch(cls, layers=LLAMA_LAYERS, port=0, slots=4, alias="tiny"):
        """Starts one without waiting for its model."""
        python = CACHE / "venv" / "bin" / "python"
        model = CACHE / f"tiny-{layers}.gguf"
        if not model.exists():
            partial = model.with_suffix(".partial")
            make = ROOT / "tests" / "engine" / "make_model.py"
            subprocess.run([python, make, partial, str(layers)], check=True)
            partial.rename(model)
        serve = ROOT / "tests" / "engine" / "serve.py"
        return Program(python, "-u", serve, port, model, slots, alias)

    @classmethod
    def start(cls, **options):
        program = cls.launch(**options)
        return cls(program, program.wait_for(r"engine ready (http://\S+)").group(1))

    def cancelled(self):
        return self.program.count(r"cancel task")


ENGINES = {"simulated": Simulated, "llama": Llama}


def address(url):
    return url.removeprefix("http://").rstrip("/")


class Router:
    """The router over a directory of its own."""

    def __init__(self, routes, keys=f"{KEY}:tester\n"):
        self._directory = tempfile.TemporaryDirectory(prefix="router-clients-")
        at = pathlib.Path(self._directory.name)
        (at / "routes").mkdir()
        (at / "keys").write_text(keys)
        (at / "router.yaml").write_text(
            "server: {drain_delay: 0s, drain_timeout: 2s}\nkeys: {file: keys}\nroutes: routes/\n"
        )
        for name, text in routes.items():
            (at / "routes" / f"{name}.yaml").write_text(text)
        any_port = "127.0.0.1:0"
        self.program = Program(
            BIN / "router", "--config", "router.yaml", "--listen", any_port, "--admin-listen", any_port,
            env={"NO_COLOR": "1"}, cwd=at,
        )
        ready = self.program.wait_for(r"router ready: public (http://\S+) admin (http://\S+)")
        self.url, self.admin = ready.groups()

    def attempts(self, request_id):
        """How often a request with this id was answered, by the access log: once at least, which is waited for."""
        line = rf"rid={re.escape(request_id)} "
        self.program.wait_for(line)
        return self.program.count(line)

    def stop(self):
        self.program.stop()
        self._directory.cleanup()


class Stack:
    """Routes: `chat` over both engines, `aliased` too, with a name of its own; `single` over the first with one slot; one per handler of answers,
    over both engines and, with `thinking-` before its name, over a reasoner; `thinking` over that as it is."""

    def __init__(self, kind):
        self._exit = contextlib.ExitStack()
        with self._exit:
            self.kind = kind
            self.engines = []
            for _ in range(2):
                engine = ENGINES[kind].start()
                self._exit.callback(engine.program.stop)
                self.engines.append(engine)
            first, second = (address(engine.url) for engine in self.engines)
            thinking = reasoner.Reasoner()
            self._exit.callback(thinking.stop)
            both = f"peers: [{{address: '{first}'}}, {{address: '{second}'}}]\n"
            think = f"peers: [{{address: '{thinking.address}'}}]\n"
            routes = {
                "chat": both,
                "single": f"peers: [{{address: '{first}', max_concurrency: 1}}]\n",
                "thinking": think,
                "aliased": f"{both}models: {{whisper-1: {self.engines[0].model}}}\n",
            }
            for handler in HANDLERS:
                routes[handler] = f"{both}postprocess: {handler}\n"
                routes[f"thinking-{handler}"] = f"{think}postprocess: {handler}\n"
            self.router = Router(routes)
            self._exit.callback(self.router.stop)
            self._exit = self._exit.pop_all()
        self.model = self.engines[0].model

    def base(self, route="chat"):
        """The base URL of an SDK without `/v1`."""
        return f"{self.router.url}/{route}"

    def cancelled(self):
        return sum(engine.cancelled() for engine in self.engines)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._exit.close()


def serve(kind):
    """For suites that are not Python: questions on standard input, answers on standard output."""
    with Stack(kind) as stack:
        hello = {"url": stack.router.url, "model": stack.model, "key": KEY, "kind": kind}
        print(json.dumps(hello), flush=True)
        for line in sys.stdin:
            question, *arguments = line.split()
            answer = {"cancelled": stack.cancelled, "attempts": stack.router.attempts}[question](*arguments)
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
