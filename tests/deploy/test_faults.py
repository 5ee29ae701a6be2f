"""What goes wrong when a stack is brought up: the part that fails says in one sentence what to mend, and its light is red."""

import socket

import pytest

from engine import until
from project import Project


@pytest.fixture
def project(podman, tmp_path, request):
    made = []

    def make(**environment):
        made.append(Project(podman, tmp_path, f"llmr-fault-{abs(hash(request.node.name)) % 10**6}", **environment))
        # What is wrong stays wrong: no need to give it twenty seconds.
        made[-1].override("services: {router: {healthcheck: {start_period: 3s}}}\n")
        return made[-1]

    yield make
    for each in made:
        # Nothing here is worth a drain.
        each.down(patience=0)


def red(project, service, words):
    until(f"{service} to be unhealthy", lambda: project.state(service)[0] == "unhealthy")
    assert words in project.state(service)[1]


def test_backends_that_nobody_serves(project):
    stack = project(BACKENDS="nowhere:8000,also-nowhere:8000")
    # Green for a moment, perhaps: a peer counts as usable until it was asked.
    stack.up("--no-deps", "router", check=False)
    red(stack, "router", "no peer answers its health probe: check that an engine listens on nowhere:8000, also-nowhere:8000")


def test_backends_that_are_no_addresses(project):
    stack = project(BACKENDS="just-a-host")
    stack.up("--no-deps", "router", check=False)
    red(stack, "router", "the route file /etc/llm-router/routes/chat.yaml is invalid: peers[0].address: expected `host:port`")
    assert "routes/chat.yaml" in stack.logs("router")


def test_a_key_file_that_the_router_may_not_read(project):
    stack = project(KEYS_ON_MISSING="deny")
    keys = stack.deploy / "config/keys"
    keys.write_text("sk-secret:owner\n")
    keys.chmod(0o600)
    assert stack.up("--no-deps", "router", check=False).returncode != 0
    red(stack, "router", "the key file /etc/llm-router/keys is unreadable (Permission denied")
    assert "sk-secret" not in stack.logs("router")


def test_a_configuration_directory_that_is_not_there(project):
    stack = project()
    (stack.deploy / "config").rename(stack.deploy / "elsewhere")
    # Docker refuses to start it and names the directory; podman makes an empty one.
    assert stack.up("--no-deps", "router", check=False).returncode != 0
    red(stack, "router", "there are no routes: check the mount of the directory that `routes` names")


def test_a_main_file_that_is_invalid(project):
    stack = project()
    (stack.deploy / "config/router.yaml").write_text("server: {lissten: 1}\n")
    stack.compose("up", "-d", "--no-build", "--no-deps", "router")
    until("its complaint", lambda: "unknown key `lissten`" in stack.logs("router"))
    assert stack.state("router")[0] != "healthy"


def test_a_listener_without_a_volume(project):
    stack = project()
    stack.override("services: {listener: {volumes: !reset []}}\n")
    stack.compose("up", "-d", "--no-build", "listener")
    until("its complaint", lambda: "use /var/lib/bodylog for records: Read-only file system" in stack.logs("listener"))
    assert stack.state("listener")[0] != "healthy"


def test_a_port_that_is_taken(project):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        stack = project(LLM_ROUTER_PUBLISH=f"127.0.0.1:{port}")
        refused = stack.up("--no-deps", "router", check=False)
    assert refused.returncode != 0
    assert "address already in use" in refused.stderr and str(port) in refused.stderr
