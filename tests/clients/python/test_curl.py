"""curl as the README shows it."""

import json
import subprocess

import stack as stacks


def curl(*arguments, text=""):
    command = ["curl", "-sS", "--noproxy", "*", "--max-time", "60", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, input=text).stdout


def chat(stack, body, *arguments):
    return curl(
        *arguments,
        "-H", f"authorization: Bearer {stacks.KEY}",
        "-H", "content-type: application/json",
        "-d", json.dumps({"model": stack.model, "messages": [{"role": "user", "content": "Hi"}], **body}),
        stack.base() + "/v1/chat/completions",
    )


def test_chat(stack):
    assert json.loads(chat(stack, {"max_tokens": 8}))["choices"][0]["message"]["content"].strip()


def test_stream_ends_with_done(stack):
    events = chat(stack, {"max_tokens": 8, "stream": True}, "-N").strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert all(json.loads(event.removeprefix("data: ")) for event in events[:-1])


def test_headers_name_the_engine(stack):
    text = chat(stack, {"max_tokens": 2, "user": "u"}, "-i")
    peers = [stacks.address(engine.url) for engine in stack.engines]
    assert any(f"x-routed-peer: {peer}" in text.lower() for peer in peers)


def test_http2_prior_knowledge(stack):
    text = chat(stack, {"max_tokens": 2}, "--http2-prior-knowledge", "-w", "%{http_version}", "-o", "/dev/null")
    assert text == "2"


def test_a_big_body_with_expect_continue(simulated):
    body = {"model": simulated.model, "max_tokens": 2, "messages": [{"role": "user", "content": "x" * (200 << 10)}]}
    status = curl(
        "-H", f"authorization: Bearer {stacks.KEY}",
        "-H", "expect: 100-continue",
        "--data-binary", "@-",
        "-o", "/dev/null", "-w", "%{http_code}",
        simulated.base() + "/v1/chat/completions",
        text=json.dumps(body),
    )
    assert status == "200"
