"""A realtime session by the openai package, unmodified, through the router."""

import openai
import pytest
import stack as stacks


def connect(stack, key):
    base = stack.base("aliased") + "/v1"
    sdk = openai.OpenAI(base_url=base, websocket_base_url=base.replace("http", "ws", 1), api_key=key)
    return sdk.realtime.connect(model="whisper-1")


def test_a_realtime_session_converses(simulated):
    with connect(simulated, stacks.KEY) as session:
        assert session.recv().type == "session.created"
        for _ in range(2):
            content = [{"type": "input_text", "text": "Tell me about the sea"}]
            session.conversation.item.create(item={"type": "message", "role": "user", "content": content})
            session.response.create()
            text = ""
            while (event := session.recv()).type != "response.done":
                if event.type == "response.output_text.delta":
                    text += event.delta
            assert text.startswith("The quick brown fox")
            assert event.response.status == "completed"
        assert event.response.usage.input_token_details.cached_tokens > 0


def test_a_wrong_key_opens_no_session(simulated):
    with pytest.raises(Exception, match="401"), connect(simulated, "wrong"):
        pass
