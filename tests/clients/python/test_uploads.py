"""Uploads and stored objects by the openai package and httpx, unmodified, through the router."""

import httpx
import openai
import pytest
import stack as stacks

# Above the length up to which the router holds a form.
LARGE = b"RIFF" + bytes(range(256)) * (8 << 10)


@pytest.fixture
def sdk(simulated):
    return openai.OpenAI(base_url=simulated.base("aliased") + "/v1", api_key=stacks.KEY, max_retries=0)


@pytest.mark.parametrize("audio", [b"RIFF", LARGE], ids=["small", "large"])
def test_a_transcription_is_asked_for_by_an_alias(sdk, audio):
    reply = sdk.audio.transcriptions.create(model="whisper-1", file=("a.wav", audio))
    assert reply.text.startswith("The quick brown fox")
    assert reply.model == "whisper-1"


def test_a_transcription_is_streamed(sdk):
    events = list(sdk.audio.transcriptions.create(model="whisper-1", file=("a.wav", LARGE), stream=True))
    assert events[-1].type == "transcript.text.done"
    assert "".join(event.delta for event in events[:-1]) == events[-1].text


def test_an_image_is_edited(sdk):
    reply = sdk.images.edit(model="whisper-1", image=("a.png", LARGE, "image/png"), prompt="brighter")
    assert reply.data[0].b64_json


@pytest.mark.parametrize("is_first", [True, False], ids=["model first", "model last"])
def test_httpx_sends_a_form_with_the_model_anywhere(simulated, is_first):
    model, file = ("model", (None, "whisper-1")), ("file", ("a.wav", LARGE, "audio/wav"))
    reply = httpx.post(
        simulated.base("aliased") + "/v1/audio/transcriptions",
        headers={"authorization": f"Bearer {stacks.KEY}"},
        files=[model, file] if is_first else [file, model],
        trust_env=False,
    )
    assert reply.status_code == 200
    assert reply.json()["model"] == "whisper-1"


def test_two_models_are_an_error_of_the_api(simulated):
    reply = httpx.post(
        simulated.base("aliased") + "/v1/audio/transcriptions",
        headers={"authorization": f"Bearer {stacks.KEY}"},
        files=[("model", (None, "a")), ("model", (None, "b"))],
        trust_env=False,
    )
    assert reply.status_code == 400
    assert reply.json()["error"]["code"] == "unreadable_body"


def test_a_file_is_stored_read_and_deleted(sdk):
    made = [sdk.files.create(file=("a.txt", b"%d" % turn), purpose="user_data") for turn in range(4)]
    for turn, file in enumerate(made):
        assert sdk.files.retrieve(file.id).bytes == 1
        assert sdk.files.content(file.id).read() == b"%d" % turn
        assert sdk.files.delete(file.id).deleted
    with pytest.raises(openai.NotFoundError):
        sdk.files.retrieve(made[0].id)


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_is_continued_and_deleted(sdk, stream):
    def ask(text, **more):
        if not stream:
            return sdk.responses.create(model="whisper-1", input=text, max_output_tokens=12, **more)
        events = sdk.responses.create(model="whisper-1", input=text, max_output_tokens=12, stream=True, **more)
        return list(events)[-1].response

    # Without a session: the engines take turns, and the id alone leads back.
    for _ in range(4):
        first = ask("Tell me about the sea " * 20)
        second = ask("And then?", previous_response_id=first.id)
        assert second.usage.input_tokens_details.cached_tokens > 0
        assert len(list(sdk.responses.input_items.list(second.id))) == 3
        sdk.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            sdk.responses.retrieve(first.id)


def test_a_conversation_collects_items(sdk):
    conversation = sdk.conversations.create()
    for turn in (1, 2):
        sdk.responses.create(model="whisper-1", input="Hello", max_output_tokens=12, conversation=conversation.id)
        assert len(list(sdk.conversations.items.list(conversation.id))) == 2 * turn
    assert sdk.conversations.delete(conversation.id).deleted
