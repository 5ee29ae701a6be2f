// Uploads and stored objects by the openai package, unmodified, through the router.
import assert from "node:assert/strict";
import { suite, test } from "node:test";

import OpenAI, { toFile } from "openai";

import { start } from "./stack.js";

// Above the length up to which the router holds a form.
const LARGE = Buffer.alloc(2 << 20, "RIFF");

await suite("uploads", async () => {
  const stack = await start("simulated");
  const client = new OpenAI({ baseURL: `${stack.base("aliased")}/v1`, apiKey: stack.key, maxRetries: 0 });

  for (const audio of [Buffer.from("RIFF"), LARGE]) {
    // The file comes before the model in this form.
    test(`a transcription of ${audio.length} bytes is asked for by an alias`, async () => {
      const reply = await client.audio.transcriptions.create({ file: await toFile(audio, "a.wav"), model: "whisper-1" });
      assert.match(reply.text, /^The quick brown fox/);
      assert.equal(reply.model, "whisper-1");
    });
  }

  test("a file is stored, read and deleted where it was made", async () => {
    for (const text of ["one", "two", "three"]) {
      const made = await client.files.create({ file: await toFile(Buffer.from(text), "a.txt"), purpose: "user_data" });
      assert.equal(await (await client.files.content(made.id)).text(), text);
      assert.ok((await client.files.delete(made.id)).deleted);
      await assert.rejects(client.files.retrieve(made.id), OpenAI.NotFoundError);
    }
  });

  test("a response is continued where it was made", async () => {
    const first = await client.responses.create({ model: "whisper-1", input: "Tell me about the sea ".repeat(20) });
    const second = await client.responses.create({ model: "whisper-1", input: "And then?", previous_response_id: first.id });
    assert.ok(second.usage.input_tokens_details.cached_tokens > 0);
    assert.equal((await client.responses.retrieve(first.id)).id, first.id);
  });
});
