"""deploy/examples: each file is accepted by the program it is for, and the nginx front passes streams on as they come."""

import contextlib
import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from engine import BIN, ROOT, until
from test_files import accepted, run

sys.path.insert(0, str(ROOT / "tests/clients"))
import stack  # noqa: E402

EXAMPLES = ROOT / "deploy/examples"


def test_every_example_of_a_route_is_accepted_without_a_warning():
    assert "no errors, no warnings" in accepted(run(BIN / "llmctl", "route", "check", "--strict", EXAMPLES))
    accepted(run(BIN / "router", "--check", "--config", EXAMPLES / "router.yaml"))


class Front:
    """The example's nginx over two routers, on ports and with a certificate of its own."""

    def __init__(self, directory, routers):
        self.directory = directory
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
             "-keyout", directory / "key", "-out", directory / "pem", "-subj", "/CN=llm.example.com",
             "-addext", "subjectAltName=DNS:llm.example.com,IP:127.0.0.1"],
            check=True, capture_output=True,
        )  # fmt: skip
        self.port = stack.free_port()
        site = (EXAMPLES / "nginx.conf").read_text()
        for old, new in {
            "10.0.0.5:8080": stack.address(routers[0].url),
            "10.0.0.6:8080": stack.address(routers[1].url),
            "listen 443 ": f"listen 127.0.0.1:{self.port} ",
            "/etc/nginx/tls/llm.example.com.pem": str(directory / "pem"),
            "/etc/nginx/tls/llm.example.com.key": str(directory / "key"),
        }.items():
            assert old in site
            site = site.replace(old, new)
        (directory / "site.conf").write_text(site)
        rooms = "".join(f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (directory / "nginx.conf").write_text(
            f"daemon off; pid {directory}/pid; error_log {directory}/error.log; worker_processes 1;\n"
            f"events {{}}\nhttp {{ access_log off; {rooms}\ninclude {directory}/site.conf; }}\n"
        )
        self.command = ["nginx", "-e", str(directory / "error.log"), "-c", str(directory / "nginx.conf")]
        self.context = ssl.create_default_context(cafile=str(directory / "pem"))

    def open(self, path, body=None):
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", data=body and json.dumps(body).encode(),
            headers={"content-type": "application/json", "authorization": f"Bearer {stack.KEY}"},
        )  # fmt: skip
        handlers = (urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.context))
        return urllib.request.build_opener(*handlers).open(request, timeout=20)


@pytest.fixture(scope="module")
def front(tmp_path_factory):
    with contextlib.ExitStack() as ending:
        # After three chunks it says nothing more: what arrives was not held back for the rest.
        program = stack.Program(BIN / "llmctl", "engine", "--ignore-eos", "--port", "0", "--fault", "hang=3@/v1/chat/completions")
        ending.callback(program.stop)
        engine = program.wait_for(r"engine .*(http://[^\s(]+)").group(1)
        routers = []
        for _ in range(2):
            routers.append(stack.Router({"chat": f"peers: [{{address: '{stack.address(engine)}'}}]\n"}))
            ending.callback(routers[-1].stop)
        # Its workers may run as somebody else, who must get in.
        directory = tmp_path_factory.mktemp("nginx")
        front = Front(directory, routers)
        front.routers = routers
        tested = run(*front.command, "-t")
        assert tested.returncode == 0 and "warn" not in tested.stderr, tested.stderr
        nginx = stack.Program(*front.command)
        ending.callback(nginx.stop)

        def answers():
            with contextlib.suppress(OSError):
                return front.open("/v1/models").status == 200

        until("nginx to answer", answers)
        yield front


def test_nginx_passes_each_token_on_when_it_comes(front):
    body = {"model": "sim", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}
    with front.open("/v1/chat/completions", body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        seen = [reply.readline() for _ in range(3)]
    assert any(b'"content"' in line for line in seen), seen


def test_nginx_keeps_status_pages_to_the_inside(front):
    for path in ("/chat/_route_state", "/_routes", "/proxy/metrics"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            front.open(path)
        assert refused.value.code == 404


def test_nginx_goes_on_when_a_router_goes(front):
    front.routers[0].stop()
    for _ in range(20):
        with front.open("/v1/completions", {"model": "sim", "prompt": "Hello", "max_tokens": 2}) as reply:
            assert reply.status == 200
