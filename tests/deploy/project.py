"""The Compose project of deploy/, in a copy that a test may edit, on ports of its own."""

import json
import pathlib
import shutil
import socket
import subprocess
import sys
import urllib.request

from engine import ROOT, until

COMPOSE = pathlib.Path(sys.executable).with_name("docker-compose")
HERE = pathlib.Path(__file__).resolve().parent
TAG = "ci"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fetch(url, **headers):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers), timeout=10) as reply:
        return reply.read().decode()


class Project:
    """One `docker compose` project; `down` is the caller's to call."""

    def __init__(self, engine, directory, name, **environment):
        self.engine = engine
        self.name = name
        self.deploy = directory / "deploy"
        # Not what a developer made beside it.
        shutil.copytree(ROOT / "deploy", self.deploy, ignore=shutil.ignore_patterns(".env", "keys"))
        self.files = [self.deploy / "docker-compose.yml", HERE / "compose.ci.yml"]
        # A test waits for scrapes.
        scrapes = self.deploy / "prometheus/prometheus.yml"
        scrapes.write_text(scrapes.read_text().replace("scrape_interval: 15s", "scrape_interval: 1s"))
        self.port, self.admin_port, prometheus = free_port(), free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.admin = f"http://127.0.0.1:{self.admin_port}"
        self.prometheus = f"http://127.0.0.1:{prometheus}"
        self.environment = {
            **engine.environment,
            "LLM_ROUTER_TAG": TAG,
            "LLM_ROUTER_PUBLISH": f"127.0.0.1:{self.port}",
            "LLM_ROUTER_ADMIN_PUBLISH": f"127.0.0.1:{self.admin_port}",
            "PROMETHEUS_PUBLISH": f"127.0.0.1:{prometheus}",
            **environment,
        }

    def override(self, text):
        """One more Compose file, over those before it."""
        file = self.deploy / f"override-{len(self.files)}.yml"
        file.write_text(text)
        self.files.append(file)

    def compose(self, *arguments, check=True):
        """What it said, both streams; an error shows them."""
        command = [COMPOSE, "-p", self.name, *(part for file in self.files for part in ("-f", file))]
        done = subprocess.run(
            [*map(str, command), "--profile", "sim", *arguments],
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        if check and done.returncode != 0:
            raise AssertionError(f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done

    def up(self, *services, check=True):
        return self.compose("up", "-d", "--no-build", "--wait", "--wait-timeout", "60", *services, check=check)

    def down(self, patience=20):
        self.compose("down", "--volumes", "--timeout", str(patience))

    def llmctl(self, *arguments, check=True):
        """The operator's command, run inside the router's container."""
        return self.compose("exec", "-T", "router", "/usr/local/bin/llmctl", *arguments, check=check)

    def state(self, service):
        """`(status, last words)` of a service's health check; the words are there once it failed."""
        container = self.compose("ps", "-a", "-q", service).stdout.strip()
        if not container:
            return "absent", ""
        found = json.loads(self.engine.run("inspect", container).stdout)[0]["State"]
        health = found.get("Health") or found.get("Healthcheck") or {}
        log = health.get("Log") or [{}]
        return health.get("Status"), " ".join(entry.get("Output", "") for entry in log).strip()

    def logs(self, service):
        done = self.compose("logs", "--no-color", "--no-log-prefix", service)
        return done.stdout + done.stderr

    def query(self, expression):
        """`{labels as text: value}` of an instant query."""
        url = f"{self.prometheus}/api/v1/query?query={urllib.request.quote(expression)}"
        result = json.loads(fetch(url))["data"]["result"]
        return {json.dumps(row["metric"], sort_keys=True): float(row["value"][1]) for row in result}

    def volume(self, name):
        """Where the files of a named volume are on this machine."""
        found = json.loads(self.engine.run("volume", "inspect", f"{self.name}_{name}").stdout)
        return pathlib.Path(found[0]["Mountpoint"])
