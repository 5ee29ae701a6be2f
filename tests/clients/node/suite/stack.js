// The stack of `tests/clients/stack.py`, started once per test file and kind of engine.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { after } from "node:test";

const PYTHON = process.env.LLM_ROUTER_TEST_PYTHON ?? "python3";
const LAUNCHER = process.env.LLM_ROUTER_TEST_STACK;

/** Starts a stack; it ends with the test file. Answers `cancelled` and `attempts ID`. */
export async function start(kind) {
  const child = spawn(PYTHON, [LAUNCHER, kind], { stdio: ["pipe", "pipe", "inherit"] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`the ${kind} stack ended`);
    return JSON.parse(value);
  };
  const ended = new Promise((resolve) => child.once("exit", resolve));
  after(async () => {
    child.stdin.end();
    await ended;
  });
  const hello = await answer();
  const ask = (question) => {
    child.stdin.write(`${question}\n`);
    return answer();
  };
  return { ...hello, ask, base: (route = "chat") => `${hello.url}/${route}` };
}

/** Asks until the answer is true. */
export async function until(what, look) {
  for (const deadline = Date.now() + 60_000; Date.now() < deadline; ) {
    if (await look()) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`waited in vain for ${what}`);
}
