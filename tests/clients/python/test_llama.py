"""What only a real engine can prove."""

import json

import openai
import stack as stacks

HELLO = [{"role": "user", "content": "Hi"}]


def test_metrics_of_the_engine_agree_that_nothing_is_left(llama):
    sdk = openai.OpenAI(base_url=llama.base() + "/v1", api_key=stacks.KEY)
    stream = sdk.chat.completions.create(model=llama.model, messages=HELLO, stream=True, max_tokens=1500)
    next(iter(stream))
    stream.close()

    def idle():
        pages = [stacks.get(engine.url + "/metrics") for engine in llama.engines]
        return all("llamacpp:requests_processing 0" in page for page in pages)

    stacks.until("both engines to be idle", idle)
    conns = json.loads(stacks.get(f"{llama.router.admin}/chat/_active_conns"))
    assert set(conns.values()) == {0}


def test_an_engine_that_is_still_loading_costs_no_request():
    ready = stacks.Llama.start()
    port = stacks.free_port()
    loading = stacks.Llama.launch(layers=64, port=port)
    router = stacks.Router(
        {
            "chat": f"peers: [{{address: '127.0.0.1:{port}'}}, {{address: '{stacks.address(ready.url)}'}}]\n"
            "health_check_interval: 100ms\n"
        }
    )
    try:
        sdk = openai.OpenAI(base_url=f"{router.url}/chat/v1", api_key=stacks.KEY, max_retries=0)
        used = set()

        def ask():
            raw = sdk.chat.completions.with_raw_response.create(
                model="tiny", messages=HELLO, max_tokens=2, user=f"user-{len(router.program.lines)}"
            )
            used.add(raw.headers["x-routed-peer"])
            return len(used) == 2

        stacks.until("both engines in use, without one failed request", ask)
    finally:
        router.stop()
        loading.stop()
        ready.program.stop()


def test_a_killed_engine_in_mid_stream_raises_and_the_other_takes_over():
    engines = [stacks.Llama.start() for _ in range(2)]
    peers = ", ".join(f"{{address: '{stacks.address(engine.url)}'}}" for engine in engines)
    router = stacks.Router({"chat": f"peers: [{peers}]\n"})
    try:
        sdk = openai.OpenAI(base_url=f"{router.url}/chat/v1", api_key=stacks.KEY, max_retries=0)
        stream = sdk.chat.completions.create(
            model="tiny", messages=HELLO, stream=True, max_tokens=1500, user="u"
        )
        home = stream.response.headers["x-routed-peer"]
        next(iter(stream))
        victim = next(engine for engine in engines if stacks.address(engine.url) == home)
        victim.program.kill()
        broken = None
        try:
            for _chunk in stream:
                pass
        except openai.APIError as error:
            broken = error
        assert broken is not None, "the stream ended as if it were whole"
        raw = sdk.chat.completions.with_raw_response.create(
            model="tiny", messages=HELLO, max_tokens=2, user="u"
        )
        assert raw.headers["x-routed-peer"] != home
    finally:
        router.stop()
        for engine in engines:
            engine.program.stop()
