"""The SDKs, unmodified, over routes that rewrite answers."""

import anthropic
import openai
import pytest
import reasoner
import stack as stacks
from test_openai import HELLO, WEATHER

QUESTION = [{"role": "user", "content": "What is the weather in Bern?"}]
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


@pytest.fixture(params=stacks.HANDLERS)
def handler(request):
    return request.param


def sdk(stack, route, **options):
    return openai.OpenAI(base_url=stack.base(route) + "/v1", api_key=stacks.KEY, **options)


def claude(stack, route):
    return anthropic.Anthropic(base_url=stack.base(route), api_key=stacks.KEY)


def test_chat_whole_and_streamed(stack, handler):
    asked = dict(model=stack.model, messages=HELLO, max_tokens=12, temperature=0)
    plain = sdk(stack, "chat").chat.completions.create(**asked).choices[0].message.content
    whole = sdk(stack, handler).chat.completions.create(**asked)
    assert whole.choices[0].message.content == plain
    assert whole.usage.completion_tokens == 12
    chunks = list(
        sdk(stack, handler).chat.completions.create(stream=True, stream_options={"include_usage": True}, **asked)
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == plain
    assert chunks[-1].usage.completion_tokens == 12


def test_usage_that_nobody_asked_for_is_not_seen(stack, handler):
    stream = sdk(stack, handler).chat.completions.create(model=stack.model, messages=HELLO, max_tokens=4, stream=True)
    assert all(chunk.choices for chunk in stream)


def test_tool_stream(simulated, handler):
    stream = sdk(simulated, handler).chat.completions.create(
        model=simulated.model, messages=QUESTION, tools=[WEATHER], stream=True
    )
    chunks = [chunk for chunk in stream if chunk.choices]
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].function.name == "get_weather"
    assert "city" in "".join(call.function.arguments or "" for call in calls)
    said = {key for chunk in chunks for key in chunk.choices[0].model_extra}
    assert ("stop_reason" in said) == (handler != "vllm_format")


def test_responses_stream(simulated, handler):
    with sdk(simulated, handler).responses.stream(model=simulated.model, input="Tell me something.") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert final.output_text == "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert final.usage.output_tokens > 0


def test_responses_tool_stream(simulated, handler):
    tool = {"type": "function", **WEATHER["function"]}
    with sdk(simulated, handler).responses.stream(
        model=simulated.model, input="What is the weather in Bern?", tools=[tool]
    ) as stream:
        final = stream.get_final_response()
    assert [item.name for item in final.output if item.type == "function_call"] == ["get_weather"]


def test_messages_stream(stack, handler):
    with claude(stack, handler).messages.stream(model=stack.model, max_tokens=12, messages=HELLO) as stream:
        parts = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(parts) > 3 and "".join(parts) == final.content[0].text
    assert final.usage.output_tokens > 0


def test_messages_tool_stream(simulated, handler):
    tool = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}
    with claude(simulated, handler).messages.stream(
        model=simulated.model, max_tokens=200, messages=QUESTION, tools=[tool]
    ) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "tool_use"
    assert "city" in next(block.input for block in final.content if block.type == "tool_use")


def extras(chunks):
    """Members that the SDK does not know, of chunks, choices and deltas."""
    for chunk in chunks:
        yield from chunk.model_extra
        for choice in chunk.choices:
            yield from choice.model_extra
            yield from choice.delta.model_extra


@pytest.mark.parametrize("packed", [{}, {"x-pack": "gzip"}], ids=["plain", "gzip"])
def test_a_reasoner(simulated, packed):
    def chunks(route, **more):
        asked = dict(model="reasoner", messages=HELLO, stream=True, stream_options={"include_usage": True})
        return list(sdk(simulated, route).chat.completions.create(extra_headers=packed, **asked, **more))

    raw = set(extras(chunks("thinking")))
    assert {"reasoning", "actual_usage", "stop_reason", "token_ids"} <= raw

    stripped = set(extras(chunks("thinking-strip_actual_usage")))
    assert raw - stripped == {"actual_usage"}

    formatted = chunks("thinking-vllm_format")
    assert set(extras(formatted)) == {"reasoning_content"}
    deltas = [chunk.choices[0].delta for chunk in formatted if chunk.choices]
    assert "".join(d.model_extra.get("reasoning_content", "") for d in deltas) == "".join(reasoner.THOUGHT)
    assert "".join(d.content or "" for d in deltas) == "".join(reasoner.TEXT)
    assert "system_fingerprint" not in formatted[-1].model_fields_set
    details = formatted[-1].usage.prompt_tokens_details
    assert details.cached_tokens == 4 and details.model_dump()["cache_write_tokens"] == 5

    tools = chunks("thinking-vllm_format", tools=[ADD])
    calls = [call for chunk in tools if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]
    assert "".join(call.function.arguments for call in calls) == '{"a": 2, "b": 2}'


@pytest.mark.parametrize("packed", [{}, {"x-pack": "gzip"}], ids=["plain", "gzip"])
def test_a_whole_answer_of_a_reasoner(simulated, packed):
    def answer(route):
        client = sdk(simulated, route)
        return client.chat.completions.create(model="reasoner", messages=HELLO, extra_headers=packed)

    assert answer("thinking").choices[0].message.model_extra["reasoning"]
    formatted = answer("thinking-vllm_format")
    message = formatted.choices[0].message
    assert message.model_extra == {"reasoning_content": "".join(reasoner.THOUGHT)}
    assert not message.model_fields_set & {"refusal", "audio"}
    assert not formatted.model_extra and not formatted.choices[0].model_extra
    assert "actual_usage" not in answer("thinking-strip_actual_usage").model_extra


def test_a_broken_stream_raises(simulated, handler):
    faulty = {"x-sim-fault": "cut-stream=3"}
    asked = dict(model=simulated.model, stream=True, extra_headers=faulty)
    client = sdk(simulated, handler, max_retries=0)
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(messages=HELLO, **asked))
    with pytest.raises(openai.APIError) as caught:
        list(client.responses.create(input="Hi", **asked))
    assert caught.value.code == "upstream_error"
