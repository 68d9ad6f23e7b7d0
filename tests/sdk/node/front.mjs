// Where the gateway is and who may come in; the tests in Python have started it.
import { File } from "node:buffer";
import OpenAI from "openai";

// Node.js 18 has it, but not as a global.
globalThis.File ??= File;

export const url = process.env.TOKENFLEET_GATEWAY;
export const model = process.env.TOKENFLEET_MODEL;
export const asleep = "asleep";
const keys = JSON.parse(process.env.TOKENFLEET_KEYS);

export const chat = { model, messages: [{ role: "user", content: "tell me of the sea" }] };
export const endless = { max_tokens: 30_000, ignore_eos: true };

/** OpenAI's own client, which tries nothing again. */
export function client(key = "all", more = {}) {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: keys[key] ?? key, maxRetries: 0, timeout: 60_000, ...more });
}

/** What is on the wire. */
export function http(path, init = {}, key = "all") {
  const headers = { authorization: `Bearer ${keys[key]}`, "content-type": "application/json" };
  return fetch(url + path, { headers, ...init });
}

/** All that a stream brings. */
export async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

/** The text of a chat's chunks. */
export function textOf(chunks) {
  return chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? "").join("");
}

/** Asks again until it is so; what it said last. */
export async function eventually(ask, seconds = 60) {
  const giveUp = Date.now() + 1000 * seconds;
  for (;;) {
    const said = await ask();
    if (said) return said;
    if (Date.now() > giveUp) throw new Error(`not within ${seconds} s`);
    await new Promise((next) => setTimeout(next, 50));
  }
}
