"""deploy/docker-compose.yml on a real engine: it comes up, serves, is operated, and loses nothing when its parts die."""

import gzip
import json
import threading
import time
import urllib.error
import urllib.request

import openai
import pytest

from engine import until
from project import Project, fetch

SERVICES = ["router", "listener", "exporter", "prometheus", "engine-a", "engine-b"]


@pytest.fixture(scope="module")
def stack(podman, tmp_path_factory):
    project = Project(podman, tmp_path_factory.mktemp("stack"), "llmr-stack")
    try:
        project.up()
        yield project
    finally:
        project.down()
    left = podman.run("ps", "-a", "-q", "--filter", f"label=com.docker.compose.project={project.name}").stdout
    assert not left, "down left containers behind"


class Client:
    """An unmodified SDK that never asks twice, and remembers which of its requests were answered."""

    def __init__(self, stack):
        self._sdk = openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0, timeout=20)
        self._asked = 0
        self.answered = []

    def ask(self, stream=False):
        """The routing headers of the answer."""
        self._asked += 1
        request = f"deploy-{id(self)}-{self._asked}"
        call = dict(
            model="sim", max_tokens=8, messages=[{"role": "user", "content": f"Question {self._asked}"}],
            extra_headers={"x-request-id": request, "x-session-id": f"s{self._asked % 7}"},
        )  # fmt: skip
        raw = self._sdk.chat.completions.with_raw_response.create(stream=stream, **call)
        if stream:
            assert [chunk for chunk in raw.parse()][-1].choices[0].finish_reason
        else:
            assert raw.parse().choices[0].message.content
        self.answered.append(request)
        return raw.headers

    def keep_asking(self):
        """Asks until told to stop; a refusal is no answer."""
        stop = threading.Event()

        def ask():
            while not stop.is_set():
                try:
                    self.ask(stream=self._asked % 2 == 0)
                except openai.OpenAIError:
                    time.sleep(0.1)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()

        def end():
            stop.set()
            thread.join()

        return end


@pytest.fixture(scope="module")
def client(stack):
    return Client(stack)


def records(stack):
    """The request id of every full record."""
    found = []
    for path in stack.volume("records").glob("????-??-??/??.jsonl*"):
        text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        found += [json.loads(line)["request_id"] for line in text.splitlines()]
    return found


def everything_is_stored(stack, client):
    def look():
        stored = records(stack)
        return set(client.answered) <= set(stored) and stored

    stored = until("a record of every answer", look)
    twice = {request for request in stored if stored.count(request) > 1}
    assert not twice, f"stored more than once: {sorted(twice)[:5]}"


def healthy(stack, *services):
    for service in services:
        until(f"{service} to be healthy", lambda service=service: stack.state(service)[0] == "healthy")


def test_every_part_is_healthy_and_only_what_is_needed_is_published(stack):
    healthy(stack, *SERVICES)
    for service in SERVICES:
        container = stack.compose("ps", "-q", service).stdout.strip()
        found = json.loads(stack.engine.run("inspect", container).stdout)[0]
        published = [host for ports in (found["HostConfig"]["PortBindings"] or {}).values() for host in ports or []]
        assert all(port["HostIp"] == "127.0.0.1" for port in published), service
        assert len(published) == {"router": 2, "prometheus": 1}.get(service, 0), service
        assert found["HostConfig"]["ReadonlyRootfs"], service
        assert found["Config"]["User"].split(":")[0] not in ("", "0", "root"), service


def test_an_sdk_is_served_by_both_engines_and_a_session_stays(stack, client):
    peers = {}
    for _ in range(28):
        headers = client.ask(stream=True)
        peers.setdefault(headers["x-routed-session"], set()).add(headers["x-routed-peer"])
    assert set.union(*peers.values()) == {"engine-a:8000", "engine-b:8000"}
    assert all(len(seen) == 1 for seen in peers.values()), peers
    everything_is_stored(stack, client)


def test_prometheus_sees_every_part_and_counts_what_was_stored(stack, client):
    def targets():
        up = stack.query("up")
        return up if up and all(value == 1 for value in up.values()) and len(up) >= 3 else None

    until("every target to be up", targets)
    expected = len(records(stack))
    until(
        "the exporter's count in Prometheus",
        lambda: sum(stack.query("sum(bodylog_requests_total)").values()) == expected,
    )


def test_the_operator_works_inside_the_router_container(stack):
    checked = stack.llmctl("route", "check")
    assert "no errors" in checked.stdout
    before = json.loads(fetch(f"{stack.admin}/chat/_rate_limit_status"))
    assert before["enabled"] is True
    stack.llmctl("toggle", "rate-limit", "--on", "0")
    after = json.loads(fetch(f"{stack.admin}/chat/_rate_limit_status"))
    assert (after["enabled"], after["source"]) == (False, "runtime")
    stack.llmctl("toggle", "rate-limit", "--reset")
    assert json.loads(fetch(f"{stack.admin}/chat/_rate_limit_status")) == before


def test_a_switch_from_outside_the_container_wants_the_token(stack):
    request = urllib.request.Request(f"{stack.admin}/chat/_rate_limit_toggle?on=0", method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10)
    assert refused.value.code in (401, 403)


def test_an_edited_route_and_new_keys_are_in_force_without_a_restart(stack, client):
    route = stack.deploy / "config/routes/chat.yaml"
    original = route.read_text()
    route.write_text("peers: [{address: 'engine-b:8000', name: edited}]\n")
    until("the edited route", lambda: client.ask()["x-proxy-backend"] == "edited")
    route.write_text(original)
    until("the route as it was", lambda: client.ask()["x-proxy-backend"] != "edited")

    keys = stack.deploy / "config/keys"
    keys.write_text("sk-deploy:tester\n")
    keys.chmod(0o644)

    def refused():
        try:
            client.ask()
        except openai.AuthenticationError:
            return True
        return False

    until("callers without a key to be refused", refused)
    with_key = openai.OpenAI(base_url=f"{stack.url}/v1", api_key="sk-deploy", max_retries=0)
    assert [model.id for model in with_key.models.list()] == ["sim"]
    # Keys that were in force stay when their file goes: only a restart opens a router again.
    keys.unlink()
    time.sleep(1)
    assert refused()
    stack.compose("restart", "--timeout", "20", "router")
    healthy(stack, "router")
    client.ask()


@pytest.mark.parametrize("service", ["listener", "exporter", "engine-a", "prometheus"])
def test_a_killed_part_comes_back_and_nothing_is_lost(stack, client, service):
    end = client.keep_asking()
    try:
        before = len(client.answered)
        stack.compose("kill", "--signal", "KILL", service)
        until("answers without it", lambda: len(client.answered) >= before + 10)
        stack.up(service)
        before = len(client.answered)
        until("answers with it", lambda: len(client.answered) >= before + 10)
    finally:
        end()
    everything_is_stored(stack, client)
    expected = len(records(stack))
    until("the exporter's count", lambda: counted(stack) == expected)


def counted(stack):
    """Rows that the exporter counted, as Prometheus has it: the exporter publishes no port."""
    return sum(stack.query("sum(bodylog_requests_total)").values())


def test_a_router_that_is_stopped_answers_what_it_took_and_keeps_its_records(stack, client):
    end = client.keep_asking()
    try:
        before = len(client.answered)
        until("traffic", lambda: len(client.answered) >= before + 10)
        stack.compose("restart", "--timeout", "30", "router")
        healthy(stack, "router")
        before = len(client.answered)
        until("answers of the new one", lambda: len(client.answered) >= before + 10)
    finally:
        end()
    everything_is_stored(stack, client)


def test_records_in_the_spool_outlive_a_killed_router(stack, client):
    stack.compose("kill", "--signal", "KILL", "listener")
    for _ in range(20):
        client.ask()
    until("the records to lie in the spool", lambda: in_memory(stack) == 0)
    stack.compose("kill", "--signal", "KILL", "router")
    stack.up("listener", "router")
    everything_is_stored(stack, client)
    expected = len(records(stack))
    until("the exporter's count", lambda: counted(stack) == expected)


def in_memory(stack):
    status = json.loads(fetch(f"{stack.admin}/chat/_bodylog_status"))
    return status["inflight_bytes"] if status["spool_bytes"] else None
