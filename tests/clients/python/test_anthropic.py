"""The anthropic package, unmodified, through the router."""

import anthropic
import pytest
import stack as stacks

HELLO = [{"role": "user", "content": "Tell me something."}]
WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client(stack, route="chat", **options):
    return anthropic.Anthropic(base_url=stack.base(route), **{"api_key": stacks.KEY, **options})


def test_message(stack):
    reply = client(stack).messages.create(model=stack.model, max_tokens=12, messages=HELLO)
    assert reply.content[0].text.strip()
    assert reply.usage.output_tokens > 0


def test_stream(stack):
    with client(stack).messages.stream(model=stack.model, max_tokens=12, messages=HELLO) as stream:
        parts = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(parts) > 3
    assert "".join(parts) == final.content[0].text


def test_count_tokens(stack):
    reply = client(stack).messages.count_tokens(model=stack.model, messages=HELLO)
    assert reply.input_tokens > 0


def test_tool_use(simulated):
    reply = client(simulated).messages.create(
        model=simulated.model,
        max_tokens=200,
        messages=[{"role": "user", "content": "What is the weather in Bern?"}],
        tools=[WEATHER],
    )
    assert reply.stop_reason == "tool_use"
    assert [block.name for block in reply.content if block.type == "tool_use"] == ["get_weather"]


def test_tool_use_stream(simulated):
    with client(simulated).messages.stream(
        model=simulated.model,
        max_tokens=200,
        messages=[{"role": "user", "content": "What is the weather in Bern?"}],
        tools=[WEATHER],
    ) as stream:
        final = stream.get_final_message()
    assert "city" in next(block.input for block in final.content if block.type == "tool_use")


def test_session_of_metadata_is_used(stack):
    raw = client(stack).messages.with_raw_response.create(
        model=stack.model, max_tokens=4, messages=HELLO, metadata={"user_id": "conversation-7"}
    )
    assert raw.headers["x-routed-source"] == "body.metadata.user_id"
    assert raw.headers["x-routed-session"] == "conversation-7"


def test_wrong_key(stack, request_id):
    sdk = client(stack, api_key="wrong", default_headers={"x-request-id": request_id})
    with pytest.raises(anthropic.AuthenticationError) as caught:
        sdk.messages.create(model=stack.model, max_tokens=4, messages=HELLO)
    assert caught.value.body["error"]["type"] == "authentication_error"
    assert caught.value.request_id == request_id
    assert stack.router.attempts(request_id) == 1


def test_load_refusal(stack):
    sdk = client(stack, route="single", max_retries=0)
    with sdk.messages.stream(model=stack.model, max_tokens=1500, messages=HELLO) as holder:
        next(iter(holder.text_stream))
        with pytest.raises(anthropic.RateLimitError) as caught:
            sdk.messages.create(model=stack.model, max_tokens=4, messages=HELLO)
    assert caught.value.body["error"]["type"] == "rate_limit_error"
    assert caught.value.body["details"]["limit"] == 1


def test_leaving_in_mid_stream_cancels_at_the_engine(stack):
    before = stack.cancelled()
    with client(stack).messages.stream(model=stack.model, max_tokens=1500, messages=HELLO) as stream:
        next(iter(stream.text_stream))
    stacks.until("the cancelled task", lambda: stack.cancelled() > before)


def test_broken_stream_raises(simulated):
    sdk = client(simulated, max_retries=0)
    with pytest.raises(anthropic.APIError):
        with sdk.messages.stream(
            model=simulated.model, max_tokens=50, messages=HELLO, extra_headers={"x-sim-fault": "cut-stream=5"}
        ) as stream:
            for _event in stream:
                pass
