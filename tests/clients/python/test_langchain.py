"""LangChain's OpenAI chat model, unmodified, through the router."""

import stack as stacks
from langchain_openai import ChatOpenAI


def model(stack, **options):
    return ChatOpenAI(
        base_url=stack.base() + "/v1", api_key=stacks.KEY, model=stack.model, max_tokens=12, temperature=0, **options
    )


def test_invoke(stack):
    reply = model(stack).invoke("Tell me something.")
    assert reply.content.strip()
    assert reply.usage_metadata["output_tokens"] == 12


def test_stream_is_the_same_text(stack):
    whole = model(stack).invoke("Tell me something.").content
    parts = [chunk.content for chunk in model(stack).stream("Tell me something.")]
    assert len(parts) > 3
    assert "".join(parts) == whole
