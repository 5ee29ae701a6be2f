"""The LiteLLM client, unmodified, through the router."""

import litellm
import stack as stacks
from test_agents import MODEL, world  # noqa: F401


def ask(world, messages, **options):  # noqa: F811
    return litellm.completion(
        model=f"openai/{MODEL}",
        api_base=f"{world.router.url}/chat/v1",
        api_key=stacks.KEY,
        messages=messages,
        extra_headers={"x-litellm-session-id": "s-1"},
        **options,
    )


def test_two_turns_share_an_engine_and_its_cache(world):  # noqa: F811
    messages = [{"role": "user", "content": "Tell me about the sea " * 20}]
    first = ask(world, messages)
    messages += [first.choices[0].message.model_dump(), {"role": "user", "content": "And then?"}]
    second = ask(world, messages)
    assert second.usage.prompt_tokens_details.cached_tokens > 0.9 * first.usage.prompt_tokens
    receipts = world.conversation()
    assert {receipt["source"] for receipt in receipts} == {"header.x-litellm-session-id"}
    assert len({attempt["peer"] for receipt in receipts for attempt in receipt["attempts"]}) == 1


def test_a_stream_is_the_same_text(world):  # noqa: F811
    messages = [{"role": "user", "content": "Tell me about the sea"}]
    whole = ask(world, messages).choices[0].message.content
    parts = [chunk.choices[0].delta.content or "" for chunk in ask(world, messages, stream=True) if chunk.choices]
    assert len(parts) > 3 and "".join(parts) == whole
