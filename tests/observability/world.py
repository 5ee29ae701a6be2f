"""Engines, listener, router and exporter under traffic that makes every number move, and Prometheus to watch them.

Every process started here is ended here, by its own handle.
"""

import contextlib
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml
from cluster import Cluster
from stack import BIN, ROOT, Program, address, free_port, get, until

DEPLOY = ROOT / "deploy"
KEY = "sk-observed"
KEYS = f"{KEY}:team-a\nsk-other:team-b\n"
# Where a minute of samples lies: a busy disk would hold up every scrape.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# What $__rate_interval means here: ten scrapes.
WINDOW = "10s"

LIMITS = """
ttft_limit_ms: 60000
ttft_window: 500ms
tps_limit_tps: 1
tps_window: 500ms
tps_min_decode_s: 0.05
"""

ROUTES = {
    # Polled, sticky, graded by turn, with an adaptive limit: everything that has a number of its own.
    "chat": LIMITS
    + """
balance: idle_aware
affinity: sticky_least_loaded
adaptive_cc: true
session_prio: true
peers: [{{address: '{vllm}', name: gpu-a, max_concurrency: 4}}, {{address: '{llamacpp}', name: gpu-b, max_concurrency: auto}}]
""",
    # One slot: the concurrency gate refuses. A rule refuses too.
    "narrow": """
peers: [{{address: '{vllm}', max_concurrency: 1}}]
affinity: none
reject_rules: [{{field: user, op: eq, value: nobody}}]
""",
    # One slot: requests wait.
    "patient": "{{full_policy: wait, fallback: [chat], peers: [{{address: '{llamacpp}', max_concurrency: 1}}]}}\n",
    # One slot, and the gates are switched off on the running router: trips are counted.
    "lenient": "{{affinity: none, peers: [{{address: '{vllm}', max_concurrency: 1}}]}}\n",
    # One pool a model; a peer that is not there: bans and retries.
    "models": """
affinity: none
balance: round_robin
models: {{renamed: other}}
health_ban_ttl: 1s
health_check_interval: 24h
peers_by_model: {{sim: [{{address: '{vllm}'}}, {{address: '{nobody}', name: gone}}], other: [{{address: '{llamacpp}'}}]}}
""",
    # Peers from a name.
    "found": "{{affinity: none, peers_from: {{dns: {{name: 127.0.0.1, port: {vllm_port}}}}}}}\n",
}


class Prometheus:
    """Debian's Prometheus over the rules of deploy/, with a scrape a second."""

    def __init__(self, targets, *, native):
        self._directory = tempfile.TemporaryDirectory(prefix="prometheus-", dir=MEMORY)
        at = pathlib.Path(self._directory.name)
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        port = free_port()
        for job in config["scrape_configs"]:
            job["static_configs"] = [{"targets": targets.get(job["job_name"], [f"127.0.0.1:{port}"])}]
        (at / "prometheus.yml").write_text(yaml.safe_dump(config))
        shutil.copytree(DEPLOY / "prometheus" / "rules", at / "rules")
        self.native = native
        self.url = f"http://127.0.0.1:{port}"
        self.program = Program(
            "prometheus", f"--config.file={at}/prometheus.yml", f"--storage.tsdb.path={at}/data", f"--web.listen-address=127.0.0.1:{port}",
            *(["--enable-feature=native-histograms"] if native else []),
        )
        until("Prometheus to answer", self._is_ready)

    def _is_ready(self):
        with contextlib.suppress(OSError):
            return get(self.url + "/-/ready")

    def ask(self, path, **query):
        reply = json.loads(get(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query, doseq=True)}"))
        if reply["status"] != "success":
            raise AssertionError(reply)
        return reply["data"]

    def range(self, expr, seconds, step=1, end=None):
        """The series of a query over the last seconds, as Grafana asks for it."""
        end = end or time.time()
        return self.ask("query_range", query=expr, start=end - seconds, end=end, step=step)["result"]

    def stop(self):
        self.program.stop()
        self._directory.cleanup()


class World:
    """Programs of `target/debug` over a directory of their own. `routes` is text with the engines' addresses to fill in."""

    def __init__(self, routes=None, engines=None, poll_interval=1):
        self._exit = contextlib.ExitStack()
        with self._exit:
            at = self.at = pathlib.Path(self._exit.enter_context(tempfile.TemporaryDirectory(prefix="observed-")))
            engines = engines or {
                "vllm": ["--dialect", "vllm", "--slots", "4", "--ttft", "20ms", "--itl", "8ms"],
                "llamacpp": ["--dialect", "llamacpp", "--slots", "4", "--ttft", "20ms", "--itl", "8ms"],
            }
            self.engines, self.engine_urls = {}, {}
            for name, flags in engines.items():
                self.start_engine(name, flags)
            self.listener = self._start(BIN / "bodylog-listener", "--dir", at / "log", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
            frames, self.listener_url = self.listener.wait_for(r"listener ready: frames tcp://(\S+) http (http://\S+)").groups()
            self._configure(routes or ROUTES, frames)
            self.router = self._start(
                BIN / "router", "--config", "router.yaml", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", cwd=at / "router"
            )
            self.url, self.admin = self.router.wait_for(r"router ready: public (http://\S+) admin (http://\S+)").groups()
            cluster = Cluster()
            self._exit.callback(cluster.stop)
            self.exporter = self._start(
                BIN / "bodylog-exporter", "--dir", at / "log", "--checkpoint", at / "checkpoint", "--listen", "127.0.0.1:0",
                "--router", self.admin, "--from-start", "--poll-interval", str(poll_interval), "--kubernetes", cluster.url,
            )
            self.exporter_url = self.exporter.wait_for(r"exporter ready: (http://\S+)").group(1)
            self.servers = []
            self._over = threading.Event()
            self._clients = []
            self._exit.callback(self._stop_clients)
            self._exit = self._exit.pop_all()

    def _start(self, *command, cwd=None):
        program = Program(*command, env={"NO_COLOR": "1"}, cwd=cwd)
        self._exit.callback(program.stop)
        return program

    def start_engine(self, name, flags):
        """Starts a simulated engine, or the next one of that name."""
        self.engines[name] = self._start(BIN / "llmctl", "engine", "--ignore-eos", *(flags if "--port" in flags else ["--port", "0", *flags]))
        self.engine_urls[name] = self.engines[name].wait_for(r"engine .*(http://[^\s(]+)").group(1)

    def _configure(self, routes, frames):
        at = self.at / "router"
        (at / "routes").mkdir(parents=True)
        (at / "keys").write_text(KEYS)
        (at / "router.yaml").write_text(
            "server: {drain_delay: 0s, drain_timeout: 1s, access_log: false}\nkeys: {file: keys}\nroutes: routes/\n"
            "owners: {team-a: {max_concurrency: 1000}}\n"
            f"bodylog: {{listener: '{frames}', spool: {{dir: '{self.at}/spool'}}}}\n"
        )
        addresses = {name: address(url) for name, url in self.engine_urls.items()}
        for name, text in routes.items():
            (at / "routes" / f"{name}.yaml").write_text(text.format(**addresses, vllm_port=addresses["vllm"].rsplit(":", 1)[1], nobody=f"127.0.0.1:{free_port()}"))

    def targets(self):
        return {
            "llm-router": [address(self.admin)],
            "bodylog-listener": [address(self.listener_url)],
            "bodylog-exporter": [address(self.exporter_url)],
            "llm-engines": [address(url) for url in self.engine_urls.values()],
        }

    def prometheus(self, *, native):
        server = Prometheus(self.targets(), native=native)
        self._exit.callback(server.stop)
        self.servers.append(server)
        return server

    def watch(self):
        """Both ways of scraping, and traffic that goes on until the end."""
        for native in (False, True):
            self.prometheus(native=native)
        self.post(f"{self.admin}/lenient/_rate_limit_toggle?on=0")
        for client in (self.conversations, self.bursts):
            self.run(client)

    def run(self, client):
        """Repeats what a client does until the world ends."""

        def again():
            turn = 0
            while not self._over.is_set():
                client(turn)
                turn += 1

        thread = threading.Thread(target=again, daemon=True)
        self._clients.append(thread)
        thread.start()

    def conversations(self, turn):
        for session in range(3):
            header = json.dumps({"session_id": f"s-{session}", "turn": turn % 40 + 1})
            headers = {"x-session-id": f"s-{session}"}
            if session:
                headers["x-phanrouter-session"] = header
            text = f"conversation {session} " * 30 + "and then " * (turn % 10)
            self.chat("chat", text, headers=headers)
        self.chat("chat", "not streamed", stream=False)
        for model in ("sim", "renamed"):
            self.chat("models", "which pool", model=model, max_tokens=4)
        self.chat("narrow", "by rule", user="nobody")

    def bursts(self, _turn):
        burst = [threading.Thread(target=self.chat, args=(route, "a burst"), daemon=True) for route in ("narrow", "patient", "lenient") for _ in range(3)]
        for one in burst:
            one.start()
        for one in burst:
            one.join()

    def chat(self, route, text, *, model="sim", stream=True, max_tokens=40, headers=None, key=KEY, **more):
        """One request; the status of its answer."""
        body = {"model": model, "stream": stream, "max_tokens": max_tokens, "messages": [{"role": "user", "content": text}], **more}
        return self.post(f"{self.url}/{route}/v1/chat/completions", body, {"authorization": f"Bearer {key}", **(headers or {})})

    def post(self, url, body=None, headers=None):
        data = json.dumps(body or {}).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=30) as reply:
                reply.read()
                return reply.status
        except urllib.error.HTTPError as refused:
            refused.read()
            return refused.code
        # A stream that breaks is no OSError.
        except (OSError, http.client.HTTPException):
            return 0

    def llmctl(self, *arguments):
        """What an operator sees of a command against this router."""
        command = [BIN / "llmctl", "--router", self.admin, *arguments]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
        return done.stdout + done.stderr

    def reload(self):
        route = self.at / "router" / "routes" / "chat.yaml"
        route.write_text(route.read_text() + "# touched\n")

    def until_everything_happened(self):
        """Whatever takes time to be seen: a reload, a row counted, a rule over rules."""
        def everywhere(expr):
            for server in self.servers:
                until(expr, lambda server=server: server.ask("query", query=expr)["result"])

        everywhere("count_over_time(llm_router_build_info[1m]) >= 3")
        self.reload()
        for expr in (
            "changes(llm_router_config_last_reload_success_timestamp_seconds[1m]) > 0",
            "llm_router:cache_hit:ratio_rate5m",
            "bodylog:truncated:ratio_rate5m",
            "bodylog_rejects_total > 2",
            'bodylog_exporter_series{metric="bodylog_output_tok_per_second"} > 0',
            "openresty_adaptive_cc",
            "bodylog_service_replicas_desired",
            "rate(llm_router_rate_limit_trips_total[10s]) > 0",
            "sum (increase(llm_router_retries_total[1m])) > 0",
        ):
            everywhere(expr)

    def _stop_clients(self):
        self._over.set()
        for client in self._clients:
            client.join(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._exit.close()
