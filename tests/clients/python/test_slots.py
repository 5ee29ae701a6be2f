"""Three llama.cpp servers with one slot each: placement by what real engines are doing.

The tests share the fleet and leave it idle; the last one kills an engine.
"""

import contextlib
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
import stack as stacks

HELLO = [{"role": "user", "content": "Hi"}]
NAMES = ["gpu0", "gpu1", "gpu2"]
# `/metrics` is asked often and given up soon, so that a test of silence takes seconds.
ROUTE = """
balance: idle_aware
affinity: none
full_policy: overflow
poll_interval: 100ms
poll_timeout: 500ms
stale_after: 1s
health_check_interval: 200ms
"""


class Fleet:
    def __init__(self, exit):
        programs = [stacks.Llama.launch(slots=1, alias=name) for name in NAMES]
        for program in programs:
            exit.callback(program.stop)
        ready = [program.wait_for(r"engine ready (http://\S+)").group(1) for program in programs]
        self.engines = {
            name: stacks.Llama(program, url) for name, program, url in zip(NAMES, programs, ready)
        }
        peers = [
            f"  - {{name: {name}, address: '{stacks.address(engine.url)}', max_concurrency: auto}}\n"
            for name, engine in self.engines.items()
        ]
        self.router = stacks.Router({"chat": "peers:\n" + "".join(peers) + ROUTE})
        exit.callback(self.router.stop)
        self.sdk = openai.OpenAI(
            base_url=f"{self.router.url}/chat/v1", api_key=stacks.KEY, max_retries=0
        )

    def backends(self):
        return backends(self.router)

    def until(self, what, name, is_so):
        return stacks.until(what, lambda: is_so(backend := self.backends()[name]) and backend)

    def until_idle(self):
        stacks.until("idle engines", lambda: all(b["load"] == 0 for b in self.backends().values()))

    def ask(self, model="any", max_tokens=2):
        """Who served a chat, and how it was found."""
        raw = self.sdk.chat.completions.with_raw_response.create(
            model=model, messages=HELLO, max_tokens=max_tokens
        )
        return raw.headers["x-proxy-backend"], raw.headers["x-routed-mode"]

    def stream(self, model, max_tokens=1000):
        """A long answer whose first token is here."""
        stream = self.sdk.chat.completions.create(
            model=model, messages=HELLO, stream=True, max_tokens=max_tokens, temperature=0
        )
        next(iter(stream))
        return stream


def backends(router):
    headers = {"accept": "application/json", "authorization": f"Bearer {stacks.KEY}"}
    page = json.loads(stacks.get(f"{router.url}/proxy/metrics", headers))
    return {backend["backend"]: backend for backend in page["backends"]}


@pytest.fixture(scope="module")
def fleet():
    with contextlib.ExitStack() as exit:
        yield Fleet(exit)


def test_slots_are_learned_from_the_engine(fleet):
    backend = fleet.until("the slots", "gpu0", lambda b: b.get("slots_reported"))
    assert (backend["slots"], backend["slots_reported"]) == (1, 1)


def test_six_chats_at_once_are_two_on_each_engine(fleet):
    with ThreadPoolExecutor(6) as clients:
        served = [client.result()[0] for client in [clients.submit(fleet.ask, "any", 40) for _ in range(6)]]
    assert sorted(served) == sorted(NAMES * 2)
    fleet.until_idle()


def test_what_others_process_and_queue_is_seen_and_avoided(fleet):
    engine = openai.OpenAI(base_url=fleet.engines["gpu0"].url + "/v1", api_key="none", max_retries=0)
    first = engine.chat.completions.create(model="x", messages=HELLO, stream=True, max_tokens=1500)
    next(iter(first))
    # The second finds no slot, and is deferred before a byte of an answer.
    leave = threading.Event()

    def deferred():
        with contextlib.suppress(openai.APIError), contextlib.closing(
            engine.chat.completions.create(model="x", messages=HELLO, stream=True, max_tokens=1)
        ):
            leave.wait(stacks.PATIENCE)

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(deferred)
        try:
            busy = fleet.until("one processing, one deferred", "gpu0", lambda b: b.get("busy") == 2)
            assert (busy["external"], busy["load"], busy["in_flight"]) == (2, 2, 0)
            page = stacks.get(fleet.engines["gpu0"].url + "/metrics")
            assert "llamacpp:requests_processing 1" in page
            assert "llamacpp:requests_deferred 1" in page
            assert {fleet.ask()[0] for _ in range(4)} == {"gpu1", "gpu2"}
        finally:
            first.close()
            leave.set()
            waiting.result()
    fleet.until_idle()


def test_the_alias_pins_a_chat_to_its_engine(fleet):
    for name in [*NAMES, *reversed(NAMES)]:
        assert fleet.ask(model=name) == (name, "pin")
    assert fleet.ask(model="GPU0")[1] == "idle_aware"
    listed = [model.id for model in fleet.sdk.models.list()]
    assert listed == NAMES


def test_a_client_that_leaves_frees_the_slot_of_its_engine(fleet):
    before = fleet.engines["gpu1"].cancelled()
    stream = fleet.stream("gpu1")
    fleet.until("the stream in the sample", "gpu1", lambda b: b.get("busy") == 1)
    stream.close()
    stacks.until("the engine to cancel", lambda: fleet.engines["gpu1"].cancelled() == before + 1)
    fleet.until_idle()


def test_an_engine_that_answers_nothing_for_a_while_is_held_and_its_stream_lives(fleet):
    stream = fleet.stream("gpu2", max_tokens=400)
    engine = fleet.engines["gpu2"].program
    engine.suspend()
    try:
        held = fleet.until("the silent engine to be held", "gpu2", lambda b: b["held"])
        assert held["load"] >= 1
        assert {fleet.ask()[0] for _ in range(4)} == {"gpu0", "gpu1"}
        assert fleet.backends()["gpu2"]["held"]
    finally:
        engine.resume()
    *_, last = stream
    assert last.choices[0].finish_reason == "length"
    fleet.until("it to be fresh again", "gpu2", lambda b: b["fresh"] and b["load"] == 0)


def test_an_engine_that_loads_its_model_is_used_once_it_has(fleet):
    port = stacks.free_port()
    ready = stacks.address(fleet.engines["gpu0"].url)
    peers = f"peers: [{{name: new, address: '127.0.0.1:{port}'}}, {{name: old, address: '{ready}'}}]\n"
    router = stacks.Router({"chat": peers + ROUTE.replace("100ms", "10ms")})
    loading = None
    try:
        sdk = openai.OpenAI(base_url=f"{router.url}/chat/v1", api_key=stacks.KEY, max_retries=0)

        def ask():
            raw = sdk.chat.completions.with_raw_response.create(
                model="any", messages=HELLO, max_tokens=2
            )
            return raw.headers["x-proxy-backend"]

        assert ask() == "old"
        loading = stacks.Llama.launch(layers=64, port=port, slots=1, alias="new")
        stacks.until("both engines in use, without one failed request", lambda: ask() == "new")
        polls = backends(router)["new"]["polls"]
        assert polls["dead"] > 0 and polls["loading"] > 0 and polls["sampled"] > 0, polls
    finally:
        router.stop()
        if loading:
            loading.stop()


def test_a_killed_engine_costs_no_chat(fleet):
    fleet.engines["gpu0"].program.kill()
    served = {fleet.ask()[0] for _ in range(6)}
    assert served == {"gpu1", "gpu2"}
    fleet.until("the dead engine to be out", "gpu0", lambda b: not b["fresh"] and not b["held"])
    assert [model.id for model in fleet.sdk.models.list()] == ["gpu1", "gpu2"]
