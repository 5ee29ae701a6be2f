// The npm SDKs, unmodified, through the router, against both kinds of engine.
import assert from "node:assert/strict";
import { suite, test } from "node:test";

import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";
import OpenAI from "openai";

import { start, until } from "./stack.js";

const HELLO = [{ role: "user", content: "Tell me something." }];
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  },
};

for (const kind of ["simulated", "llama"]) {
  await suite(kind, async () => {
    const stack = await start(kind);
    const openai = (options = {}, route = "chat") =>
      new OpenAI({ baseURL: `${stack.base(route)}/v1`, apiKey: stack.key, ...options });
    const anthropic = (options = {}) => new Anthropic({ baseURL: stack.base(), apiKey: stack.key, ...options });
    const vercel = createOpenAICompatible({ name: "router", baseURL: `${stack.base()}/v1`, apiKey: stack.key, includeUsage: true });
    const asked = { model: stack.model, messages: HELLO, max_tokens: 12, temperature: 0 };

    test("openai: a stream is the same text", async () => {
      const whole = (await openai().chat.completions.create(asked)).choices[0].message.content;
      const parts = [];
      for await (const chunk of await openai().chat.completions.create({ ...asked, stream: true })) {
        parts.push(chunk.choices[0]?.delta?.content ?? "");
      }
      assert.ok(parts.length > 3);
      assert.equal(parts.join(""), whole);
    });

    test("openai: leaving in mid-stream cancels at the engine", async () => {
      const before = await stack.ask("cancelled");
      const stream = await openai().chat.completions.create({ ...asked, max_tokens: 1500, stream: true });
      for await (const _chunk of stream) {
        stream.controller.abort();
        break;
      }
      await until("the cancelled task", async () => (await stack.ask("cancelled")) > before);
    });

    test("openai: aborting before the answer cancels at the engine", async () => {
      const before = await stack.ask("cancelled");
      const signal = AbortSignal.timeout(300);
      await assert.rejects(openai().chat.completions.create({ ...asked, max_tokens: 1500 }, { signal }));
      await until("the cancelled task", async () => (await stack.ask("cancelled")) > before);
    });

    test("openai: a wrong key raises with code and request id, once", async () => {
      const id = `node-wrong-key-${kind}`;
      const client = openai({ apiKey: "wrong", defaultHeaders: { "x-request-id": id } });
      await assert.rejects(client.chat.completions.create(asked), (error) => {
        assert.ok(error instanceof OpenAI.AuthenticationError);
        assert.deepEqual([error.status, error.code, error.requestID], [401, "invalid_api_key", id]);
        return true;
      });
      assert.equal(await stack.ask(`attempts ${id}`), 1);
    });

    test("openai: a load refusal is retried until there is room", async () => {
      const id = `node-load-${kind}`;
      const holder = await openai({}, "single").chat.completions.create({ ...asked, max_tokens: 1500, stream: true });
      const client = openai({ defaultHeaders: { "x-request-id": id } }, "single");
      const reply = client.chat.completions.create(asked);
      assert.ok((await stack.ask(`attempts ${id}`)) >= 1);
      holder.controller.abort();
      assert.ok((await reply).choices[0].message.content);
      await until("the second attempt", async () => (await stack.ask(`attempts ${id}`)) >= 2);
    });

    test("anthropic: a stream and its final message", async () => {
      const stream = anthropic().messages.stream({ model: stack.model, max_tokens: 12, messages: HELLO });
      let text = "";
      stream.on("text", (part) => (text += part));
      const final = await stream.finalMessage();
      assert.ok(text.length > 0);
      assert.equal(final.content[0].text, text);
    });

    test("anthropic: a wrong key raises with the request id", async () => {
      const id = `node-anthropic-key-${kind}`;
      const client = anthropic({ apiKey: "wrong", defaultHeaders: { "x-request-id": id } });
      await assert.rejects(client.messages.create({ model: stack.model, max_tokens: 4, messages: HELLO }), (error) => {
        assert.ok(error instanceof Anthropic.AuthenticationError);
        assert.deepEqual([error.status, error.requestID], [401, id]);
        return true;
      });
    });

    test("vercel ai: generateText and streamText", async () => {
      const model = vercel(stack.model);
      const whole = await generateText({ model, prompt: "Tell me something.", maxOutputTokens: 12, temperature: 0 });
      const stream = streamText({ model, prompt: "Tell me something.", maxOutputTokens: 12, temperature: 0 });
      let text = "";
      for await (const part of stream.textStream) text += part;
      assert.equal(text, whole.text);
      assert.equal((await stream.usage).outputTokens, 12);
    });

    test("vercel ai: the second turn finds its cache", async () => {
      const model = vercel(stack.model);
      const options = { model, maxOutputTokens: 10, temperature: 0, headers: { "x-session-id": `vercel-${kind}` } };
      const messages = [{ role: "user", content: "A conversation of the ai package. " + "Words to remember. ".repeat(4) }];
      const first = await generateText({ ...options, messages });
      messages.push({ role: "assistant", content: first.text }, { role: "user", content: "And then?" });
      const second = await generateText({ ...options, messages });
      assert.ok(second.usage.cachedInputTokens >= first.usage.inputTokens - 32, JSON.stringify(second.usage));
    });

    for (const handler of ["vllm_format", "strip_actual_usage"]) {
      test(`openai and anthropic: streams through ${handler}`, async () => {
        const whole = (await openai().chat.completions.create(asked)).choices[0].message.content;
        let text = "";
        for await (const chunk of await openai({}, handler).chat.completions.create({ ...asked, stream: true })) {
          assert.equal(chunk.choices.length, 1);
          text += chunk.choices[0].delta.content ?? "";
        }
        assert.equal(text, whole);
        const client = new Anthropic({ baseURL: stack.base(handler), apiKey: stack.key });
        const final = await client.messages.stream({ model: stack.model, max_tokens: 12, messages: HELLO }).finalMessage();
        assert.ok(final.content[0].text.length > 0);
      });
    }

    if (kind === "simulated") {
      test("openai: a reasoner's stream through each handler, compressed and not", async () => {
        for (const headers of [{}, { "x-pack": "gzip" }]) {
          const body = { model: "reasoner", messages: HELLO, stream: true, stream_options: { include_usage: true } };
          const chunks = async (route) => {
            const found = [];
            for await (const chunk of await openai({}, route).chat.completions.create(body, { headers })) found.push(chunk);
            return found;
          };
          const thought = (found, key) => found.map((chunk) => chunk.choices[0]?.delta?.[key] ?? "").join("");
          const raw = await chunks("thinking");
          assert.ok(raw.at(-1).actual_usage && raw.at(-1).system_fingerprint);
          const formatted = await chunks("thinking-vllm_format");
          assert.equal(thought(formatted, "reasoning_content"), thought(raw, "reasoning"));
          assert.equal(thought(formatted, "reasoning"), "");
          assert.deepEqual(Object.keys(formatted.at(-1)), ["id", "created", "model", "object", "choices", "usage"]);
          const stripped = await chunks("thinking-strip_actual_usage");
          const { actual_usage: _, ...rest } = raw.at(-1);
          assert.deepEqual(stripped.at(-1), rest);
        }
      });

      test("vercel ai: the thoughts of a reasoner are reasoning", async () => {
        const model = createOpenAICompatible({
          name: "router",
          baseURL: `${stack.base("thinking-vllm_format")}/v1`,
          apiKey: stack.key,
        })("reasoner");
        const stream = streamText({ model, prompt: "Two and two?" });
        assert.equal(await stream.text, "It is four.");
        assert.ok((await stream.reasoningText).startsWith("Let me think"));
      });

      test("openai: a stream of responses, with a tool, through each handler", async () => {
        const { function: fn } = WEATHER;
        for (const handler of ["vllm_format", "strip_actual_usage"]) {
          const stream = openai({}, handler).responses.stream({
            model: stack.model,
            input: "What is the weather in Bern?",
            tools: [{ type: "function", strict: false, ...fn }],
          });
          const final = await stream.finalResponse();
          assert.equal(final.output.find((item) => item.type === "function_call").name, "get_weather");
        }
      });

      test("openai: a broken stream of responses raises the router's error", async () => {
        const headers = { "x-sim-fault": "cut-stream=3" };
        const stream = await openai({ maxRetries: 0 }).responses.create({ model: stack.model, input: "Hi", stream: true }, { headers });
        await assert.rejects(
          async () => {
            for await (const _event of stream);
          },
          (error) => error.code === "upstream_error",
        );
      });

      test("openai: tool calls, whole and streamed", async () => {
        const messages = [{ role: "user", content: "What is the weather in Bern?" }];
        const tools = { model: stack.model, messages, tools: [WEATHER] };
        const whole = await openai().chat.completions.create(tools);
        assert.equal(whole.choices[0].message.tool_calls[0].function.name, "get_weather");
        const runner = openai().chat.completions.stream(tools);
        const final = await runner.finalChatCompletion();
        assert.equal(final.choices[0].message.tool_calls[0].function.name, "get_weather");
      });

      test("openai: a broken stream raises", async () => {
        const headers = { "x-sim-fault": "cut-stream=3" };
        const stream = await openai({ maxRetries: 0 }).chat.completions.create({ ...asked, stream: true }, { headers });
        await assert.rejects(async () => {
          for await (const _chunk of stream);
        });
      });
    }
  });
}
