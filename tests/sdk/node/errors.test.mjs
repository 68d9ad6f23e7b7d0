// Each failure as an exception of its own in the npm package `openai`.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { toFile } from "openai";
import { all, asleep, chat, client, endless, eventually, http, model } from "./front.mjs";

const sdk = client();
const low = { fleet: { priority: "low", wait: 0, deadline: 600 } };

/** The exception of exactly this class, with this code. */
async function refused(asked, kind, code) {
  const error = await asked.then(
    () => assert.fail("it was not refused"),
    (why) => why,
  );
  assert.equal(error.constructor, kind, String(error));
  assert.equal(error.code, code);
  return error;
}

for (const [key, change, kind, code] of [
  ["wrong", {}, OpenAI.AuthenticationError, "invalid_api_key"],
  ["low", { fleet: { priority: "high" } }, OpenAI.PermissionDeniedError, "permission_denied"],
  ["all", { fleet: { tenant: "other" } }, OpenAI.PermissionDeniedError, "permission_denied"],
  ["all", { model: "nobody's" }, OpenAI.NotFoundError, "model_not_found"],
  ["narrow", {}, OpenAI.NotFoundError, "model_not_found"],
  ["all", { temperature: -1 }, OpenAI.BadRequestError, "invalid_request"],
  ["all", { messages: [] }, OpenAI.BadRequestError, "invalid_request"],
  ["all", { fleet: { id: "a/b" } }, OpenAI.BadRequestError, "invalid_id"],
  ["all", { fleet: { wait: 0 }, model: asleep }, OpenAI.InternalServerError, "wait_timeout"],
]) {
  for (const stream of code === "wait_timeout" ? [false] : [false, true]) {
    test(`${code} for ${key}${stream ? ", as a stream" : ""}: ${JSON.stringify(change)}`, () =>
      refused(client(key).chat.completions.create({ ...chat, ...change, stream }), kind, code));
  }
}

test("the same id with another body", async () => {
  const once = { headers: { "idempotency-key": "npm: the same" } };
  await sdk.chat.completions.create({ ...chat, max_tokens: 2 }, once);
  await refused(
    sdk.chat.completions.create({ ...chat, max_tokens: 3 }, once),
    OpenAI.ConflictError,
    "conflicting_id",
  );
});

test("a body that is too large", async () => {
  const messages = [{ role: "user", content: "x".repeat(3 << 20) }];
  const error = await refused(sdk.chat.completions.create({ model, messages }), OpenAI.APIError, "too_large");
  assert.equal(error.status, 413);
});

test("what is another tenant's is not there", async () => {
  const file = await sdk.files.create({ file: await toFile(Buffer.from("{}"), "in.jsonl"), purpose: "batch" });
  const { files } = client("stranger");
  // One after the other: a refusal that came before it is awaited would count as nobody's.
  for (const verb of ["retrieve", "content", "delete"]) {
    await refused(files[verb](file.id), OpenAI.NotFoundError, "unknown_file");
  }
  assert.ok((await sdk.files.delete(file.id)).deleted);
});

test("a full queue", async () => {
  const ask = () => client("full-npm").chat.completions.create({ ...chat, ...low, model: asleep });
  for (let waiting = 0; waiting < 2; waiting += 1) await refused(ask(), OpenAI.InternalServerError, "wait_timeout");
  const error = await refused(ask(), OpenAI.InternalServerError, "queue_full");
  assert.equal(error.status, 503);
  assert.ok(Number(error.headers.get("retry-after")) >= 1);
});

test("a deadline that can't be met", async () => {
  const messages = [{ role: "user", content: "word ".repeat(60_000) }];
  const asked = sdk.chat.completions.create({ model, messages, fleet: { priority: "low", deadline: 2 } });
  const error = await refused(asked, OpenAI.InternalServerError, "unreachable");
  assert.equal(error.status, 503);
  assert.match(error.message, /would come \d+ ms after/);
});

test("a stream that ends in the middle", async () => {
  const asked = sdk.chat.completions.create({ ...chat, ...endless, stream: true });
  const { data: stream, response } = await asked.withResponse();
  const chunks = stream[Symbol.asyncIterator]();
  await chunks.next();
  await http(`/v1/requests/${response.headers.get("x-request-id")}/cancel`, { method: "POST" });
  await refused(all({ [Symbol.asyncIterator]: () => chunks }), OpenAI.APIError, "cancelled");
});

test("a client that waits for so long only", async () => {
  const asked = client("all", { timeout: 500 }).chat.completions.create(
    { ...chat, model: asleep },
    { headers: { "x-fleet-id": "npm-timeout" } },
  );
  await refused(asked, OpenAI.APIConnectionTimeoutError, undefined);
  await eventually(async () => {
    const looked = await http(`/v1/requests/${asleep}.0.acme.npm-timeout`);
    return (await looked.json()).status === "cancelled";
  });
});

test("nobody is there", async () => {
  const nobody = new OpenAI({ baseURL: "http://127.0.0.1:9/v1", apiKey: "any", maxRetries: 0 });
  await refused(nobody.models.list(), OpenAI.APIConnectionError, undefined);
});

test("a limit, and how the client waits for it", async () => {
  const stream = await client("one-npm").chat.completions.create({ ...chat, ...endless, stream: true });
  await stream[Symbol.asyncIterator]().next();
  const error = await refused(
    client("one-npm").chat.completions.create({ ...chat, max_tokens: 2 }),
    OpenAI.RateLimitError,
    "rate_limit_exceeded",
  );
  assert.equal(error.type, "jobs");
  assert.equal(error.headers.get("retry-after"), "1");

  const statuses = [];
  const patient = client("one-npm", {
    maxRetries: 20,
    fetch: async (...asked) => {
      const answer = await fetch(...asked);
      statuses.push(answer.status);
      // From here on there is room.
      if (answer.status === 429) stream.controller.abort();
      return answer;
    },
  });
  const answer = await patient.chat.completions.create({ ...chat, max_tokens: 2 });
  assert.equal(answer.usage.completion_tokens, 2);
  assert.equal(statuses[0], 429);
  assert.equal(statuses.at(-1), 200);
});
