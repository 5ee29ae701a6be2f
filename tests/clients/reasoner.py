"""An engine of a few fixed answers: those of vLLM that think aloud, with every field clients stumble over.

With `x-pack: gzip` the answer comes compressed, one flush an event.
"""

import gzip
import http.server
import io
import json
import threading

THOUGHT = ["Let me ", "think \u2026 ", "\U0001f600"]
TEXT = ["It is ", "four."]
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 5,
    "total_tokens": 14,
    "prompt_tokens_details": {"cached_tokens": 4, "created_cache_tokens": 5, "multimodal_tokens": None},
}
ACTUAL = {"prompt_tokens": 8, "completion_tokens": 5}
HEAD = {"id": "chatcmpl-1", "created": 1, "model": "reasoner"}
CALL = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": ""}}


def frame(delta, finish=None, **more):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
    if finish:
        choice["stop_reason"] = None
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice], **more}


def frames(with_tools):
    yield frame({"role": "assistant", "content": ""}, prompt_token_ids=None)
    for part in THOUGHT:
        yield frame({"reasoning": part})
    if with_tools:
        yield frame({"tool_calls": [CALL]})
        for part in ['{"a": 2, ', '"b": 2}']:
            yield frame({"tool_calls": [{"index": 0, "function": {"arguments": part}}]})
    else:
        for part in TEXT:
            yield frame({"content": part})
    yield frame({}, "tool_calls" if with_tools else "stop")
    yield {
        **HEAD,
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": USAGE,
        "actual_usage": ACTUAL,
        "system_fingerprint": "vllm-0.32.0",
        "service_tier": None,
    }


def document():
    message = {"role": "assistant", "content": "".join(TEXT), "reasoning": "".join(THOUGHT), "refusal": None, "audio": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop", "stop_reason": None}
    return {
        **HEAD,
        "object": "chat.completion",
        "choices": [choice],
        "usage": USAGE,
        "actual_usage": ACTUAL,
        "kv_transfer_params": None,
        "prompt_logprobs": None,
    }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._whole({"object": "list", "data": [{"id": "reasoner", "object": "model", "created": 1, "owned_by": "test"}]})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not request.get("stream"):
            self._whole(document())
            return
        events = [f"data: {json.dumps(frame, ensure_ascii=False)}\n\n" for frame in frames("tools" in request)]
        self._begin("text/event-stream", ("transfer-encoding", "chunked"))
        packed = io.BytesIO()
        packer = gzip.GzipFile(fileobj=packed, mode="wb") if self._packs() else None
        for event in [*events, "data: [DONE]\n\n"]:
            data = event.encode()
            if packer:
                packer.write(data)
                packer.flush()
                data = packed.getvalue()
                packed.seek(0)
                packed.truncate()
            # In halves, so that no event lies in one chunk.
            for half in (data[: len(data) // 2], data[len(data) // 2 :]):
                self._chunk(half)
        if packer:
            packer.close()
            self._chunk(packed.getvalue())
        self.wfile.write(b"0\r\n\r\n")

    def _packs(self):
        return self.headers.get("x-pack") == "gzip"

    def _begin(self, kind, *headers):
        self.send_response(200)
        for name, value in [("content-type", kind), *headers]:
            self.send_header(name, value)
        if self._packs():
            self.send_header("content-encoding", "gzip")
        self.end_headers()

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _whole(self, body):
        data = json.dumps(body).encode()
        data = gzip.compress(data) if self._packs() else data
        self._begin("application/json", ("content-length", str(len(data))))
        self.wfile.write(data)

    def log_message(self, *_):
        pass


class Reasoner:
    """Serves in this process until it is stopped."""

    def __init__(self):
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = "127.0.0.1:%d" % self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
