"""deploy/alertmanager: an alert that fires reaches the webhook, by Alertmanager itself."""

import http.server
import json
import re
import shutil
import subprocess
import threading
import urllib.request

import pytest

from engine import ROOT, until
from project import fetch, free_port
from test_files import accepted, run

CONFIG = ROOT / "deploy/alertmanager"

pytestmark = pytest.mark.skipif(not shutil.which("prometheus-alertmanager"), reason="prometheus-alertmanager is not installed")


class Sink(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def sink():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    server.heard = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def alertmanager(tmp_path, sink):
    """The shipped configuration, its webhook at the sink and its first wait shortened."""
    text = (CONFIG / "alertmanager.yml").read_text()
    text, changed = re.subn(r"url: http://\S+", f"url: http://127.0.0.1:{sink.server_port}/", text)
    assert changed == 1
    (tmp_path / "alertmanager.yml").write_text(text.replace("group_wait: 10s", "group_wait: 0s"))
    port = free_port()
    program = subprocess.Popen(
        ["prometheus-alertmanager", f"--config.file={tmp_path}/alertmanager.yml", f"--storage.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(tmp_path / "log").open("w"),
    )  # fmt: skip
    try:
        until("Alertmanager", lambda: program.poll() is not None or answers(f"http://127.0.0.1:{port}/-/ready"), 20)
        assert program.poll() is None, (tmp_path / "log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        program.terminate()
        program.wait()


def answers(url):
    try:
        return fetch(url)
    except OSError:
        return None


def fire(url, **labels):
    alert = [{"labels": labels, "annotations": {"summary": "test", "runbook_url": "docs/operating.md#x"}}]
    request = urllib.request.Request(f"{url}/api/v2/alerts", json.dumps(alert).encode(), {"content-type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).close()


def test_the_configuration_is_valid():
    assert "SUCCESS" in accepted(run("amtool", "check-config", CONFIG / "alertmanager.yml"))


def test_a_critical_alert_reaches_the_webhook(alertmanager, sink):
    fire(alertmanager, alertname="LlmRouteFailing", severity="critical", route="chat")
    until("the webhook", lambda: sink.heard, 30)
    (alert,) = sink.heard[0]["alerts"]
    assert alert["labels"]["alertname"] == "LlmRouteFailing" and alert["annotations"]["runbook_url"]


def test_compose_mounts_it_and_prometheus_sends_to_it():
    compose = (ROOT / "deploy/docker-compose.yml").read_text()
    assert "source: ./alertmanager, target: /etc/alertmanager" in compose
    assert 'targets: ["alertmanager:9093"]' in (ROOT / "deploy/prometheus/prometheus.yml").read_text()
