"""The openai package, unmodified, through the router."""

import threading

import openai
import pytest
import stack as stacks

HELLO = [{"role": "user", "content": "Tell me something."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def client(stack, route="chat", **options):
    options = {"api_key": stacks.KEY, **options}
    return openai.OpenAI(base_url=stack.base(route) + "/v1", **options)


def long_stream(sdk, stack):
    return sdk.chat.completions.create(
        model=stack.model, messages=HELLO, stream=True, max_tokens=1500, temperature=0
    )


def read_some(stream, chunks=5):
    for _, _chunk in zip(range(chunks), stream):
        pass


def test_models(stack):
    assert stack.model in [model.id for model in client(stack).models.list()]


def test_chat(stack):
    reply = client(stack).chat.completions.create(
        model=stack.model, messages=HELLO, max_tokens=12, temperature=0
    )
    assert reply.choices[0].message.content.strip()
    assert reply.usage.completion_tokens == 12


def test_stream_is_the_same_text(stack):
    sdk = client(stack)
    asked = dict(model=stack.model, messages=HELLO, max_tokens=12, temperature=0)
    whole = sdk.chat.completions.create(**asked).choices[0].message.content
    parts = [
        chunk.choices[0].delta.content or ""
        for chunk in sdk.chat.completions.create(stream=True, **asked)
        if chunk.choices
    ]
    assert len(parts) > 3
    assert "".join(parts) == whole


def test_stream_usage_when_asked(stack):
    chunks = list(
        client(stack).chat.completions.create(
            model=stack.model, messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].usage.completion_tokens == 8


def test_completions(stack):
    reply = client(stack).completions.create(model=stack.model, prompt="Once", max_tokens=8, temperature=0)
    assert reply.choices[0].text.strip()


def test_embeddings(simulated):
    reply = client(simulated).embeddings.create(model=simulated.model, input=["a", "b"], encoding_format="float")
    assert len(reply.data) == 2 and reply.data[0].embedding


def test_responses(simulated):
    reply = client(simulated).responses.create(model=simulated.model, input="Tell me something.")
    assert reply.output_text.strip()


def test_responses_stream(simulated):
    events = list(client(simulated).responses.create(model=simulated.model, input="Hi", stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"


def test_tool_call(simulated):
    reply = client(simulated).chat.completions.create(
        model=simulated.model,
        messages=[{"role": "user", "content": "What is the weather in Bern?"}],
        tools=[WEATHER],
    )
    assert reply.choices[0].finish_reason == "tool_calls"
    assert reply.choices[0].message.tool_calls[0].function.name == "get_weather"


def test_tool_call_stream(simulated):
    stream = client(simulated).chat.completions.create(
        model=simulated.model,
        messages=[{"role": "user", "content": "What is the weather in Bern?"}],
        tools=[WEATHER],
        stream=True,
    )
    calls = [call for chunk in stream if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].function.name == "get_weather"
    assert "city" in "".join(call.function.arguments or "" for call in calls)


def test_turns_of_a_conversation_find_their_cache(stack):
    sdk = client(stack)
    for conversation in range(3):
        # Different from the first word on, so that no conversation can profit from another.
        opening = f"{conversation} is the number of this conversation. " + "Words to remember. " * 4
        messages = [{"role": "user", "content": opening}]
        asked = dict(model=stack.model, user=f"user-{conversation}", max_tokens=10, temperature=0)
        raw = sdk.chat.completions.with_raw_response.create(messages=messages, **asked)
        first = raw.parse()
        home = raw.headers["x-routed-peer"]
        messages.append({"role": "assistant", "content": first.choices[0].message.content})
        messages.append({"role": "user", "content": "And then?"})
        raw = sdk.chat.completions.with_raw_response.create(messages=messages, **asked)
        usage = raw.parse().usage
        assert raw.headers["x-routed-peer"] == home
        # All of the first turn's prompt but its last block was in the cache of the home.
        assert usage.prompt_tokens_details.cached_tokens >= first.usage.prompt_tokens - 32


def test_wrong_key(stack, request_id):
    sdk = client(stack, api_key="wrong", default_headers={"x-request-id": request_id})
    with pytest.raises(openai.AuthenticationError) as caught:
        sdk.chat.completions.create(model=stack.model, messages=HELLO)
    assert caught.value.code == "invalid_api_key"
    assert caught.value.request_id == request_id
    assert stack.router.attempts(request_id) == 1


def test_unknown_route_is_not_retried(stack, request_id):
    sdk = client(stack, route="nosuch", default_headers={"x-request-id": request_id})
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.chat.completions.create(model=stack.model, messages=HELLO)
    assert (caught.value.code, caught.value.request_id) == ("route_not_found", request_id)
    assert stack.router.attempts(request_id) == 1


def test_the_engines_400_passes_and_is_not_retried(stack, request_id, bad_messages):
    sdk = client(stack, default_headers={"x-request-id": request_id})
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(model=stack.model, messages=bad_messages)
    assert caught.value.request_id == request_id
    assert caught.value.body["message"]
    assert stack.router.attempts(request_id) == 1


def test_load_refusal_is_retried_until_there_is_room(stack, request_id):
    holder = long_stream(client(stack, route="single"), stack)
    read_some(holder, 1)
    sdk = client(stack, route="single", default_headers={"x-request-id": request_id})
    result = {}

    def ask():
        result["reply"] = sdk.chat.completions.create(model=stack.model, messages=HELLO, max_tokens=4)

    thread = threading.Thread(target=ask)
    thread.start()
    assert stack.router.attempts(request_id) >= 1
    holder.close()
    thread.join(60)
    assert result["reply"].choices[0].message.content
    stacks.until("the second attempt", lambda: stack.router.attempts(request_id) >= 2)


def test_load_refusal_without_retries(stack):
    holder = long_stream(client(stack, route="single"), stack)
    read_some(holder, 1)
    with pytest.raises(openai.RateLimitError) as caught:
        client(stack, route="single", max_retries=0).chat.completions.create(model=stack.model, messages=HELLO)
    holder.close()
    assert caught.value.code == "concurrency_limit"
    assert int(caught.value.response.headers["retry-after-ms"]) > 0


def test_leaving_in_mid_stream_cancels_at_the_engine(stack):
    before = stack.cancelled()
    stream = long_stream(client(stack), stack)
    read_some(stream)
    stream.close()
    stacks.until("the cancelled task", lambda: stack.cancelled() > before)


def test_time_out_before_the_answer_cancels_at_the_engine(stack):
    before = stack.cancelled()
    sdk = client(stack, timeout=0.3, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        sdk.chat.completions.create(model=stack.model, messages=HELLO, max_tokens=1500, temperature=0)
    stacks.until("the cancelled task", lambda: stack.cancelled() > before)


def test_broken_stream_raises(simulated):
    sdk = client(simulated, max_retries=0)
    with pytest.raises(openai.APIError):
        for _chunk in sdk.chat.completions.create(
            model=simulated.model, messages=HELLO, stream=True, extra_headers={"x-sim-fault": "cut-stream=3"}
        ):
            pass


def test_broken_stream_of_responses_raises(simulated):
    sdk = client(simulated, max_retries=0)
    with pytest.raises(openai.APIError):
        for _event in sdk.responses.create(
            model=simulated.model, input="Hi", stream=True, extra_headers={"x-sim-fault": "cut-stream=3"}
        ):
            pass


@pytest.mark.parametrize("status, expected", [(502, "retry"), (503, "retry"), (500, "pass"), (429, "pass")])
def test_engine_faults(simulated, status, expected):
    sdk = client(simulated, max_retries=0)
    # The header asks every engine for the fault: the router's own retries end with the engine's answer.
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.chat.completions.create(
            model=simulated.model, messages=HELLO, extra_headers={"x-sim-fault": str(status)}
        )
    assert caught.value.status_code == status
    retries = int(caught.value.response.headers["x-routed-retries"])
    assert (retries > 0) == (expected == "retry")
