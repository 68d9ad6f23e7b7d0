// What the npm package `openai` gets when all goes well.
import assert from "node:assert/strict";
import { test } from "node:test";
import { toFile } from "openai";
import { all, chat, client, eventually, http, model, textOf } from "./front.mjs";

const sdk = client();
const wordsOf = (text) => text.split(/\s+/).filter(Boolean).length;

test("a chat", async () => {
  const answer = await sdk.chat.completions.create({ ...chat, max_tokens: 7 });
  assert.equal(wordsOf(answer.choices[0].message.content), 7);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.completion_tokens, 7);
});

test("a stream with its usage", async () => {
  const body = { ...chat, max_tokens: 40 };
  const whole = await sdk.chat.completions.create(body);
  const stream = await sdk.chat.completions.create({ ...body, stream: true, stream_options: { include_usage: true } });
  const chunks = await all(stream);
  assert.equal(textOf(chunks), whole.choices[0].message.content);
  assert.deepEqual(chunks.at(-1).choices, []);
  assert.deepEqual(chunks.at(-1).usage, whole.usage);
  assert.ok(chunks.slice(0, -1).every((chunk) => !chunk.usage));
});

test("the last event", async () => {
  const body = { ...chat, max_tokens: 3, stream: true };
  const answer = await http("/v1/chat/completions", { method: "POST", body: JSON.stringify(body) });
  assert.match(answer.headers.get("content-type"), /^text\/event-stream/);
  assert.match(await answer.text(), /data: \[DONE\]\n\n$/);
});

test("the helper for streams", async () => {
  const body = { ...chat, max_tokens: 20 };
  const whole = await sdk.chat.completions.create(body);
  assert.equal(await sdk.chat.completions.stream(body).finalContent(), whole.choices[0].message.content);
});

test("completions", async () => {
  const answer = await sdk.completions.create({ model, prompt: ["one", "two"], max_tokens: 5 });
  const chunks = await all(await sdk.completions.create({ model, prompt: "one", max_tokens: 5, stream: true }));
  assert.deepEqual(
    [...answer.choices, { text: chunks.map((chunk) => chunk.choices[0].text).join("") }].map((one) => wordsOf(one.text)),
    [5, 5, 5],
  );
});

for (const how of [{}, { encoding_format: "float" }]) {
  test(`embeddings, asked for as ${how.encoding_format ?? "the client does"}`, async () => {
    const answer = await sdk.embeddings.create({ model, input: ["one", "two"], dimensions: 8, ...how });
    assert.deepEqual(
      answer.data.map((item) => item.embedding.length),
      [8, 8],
    );
    assert.ok(answer.data[0].embedding.every(Number.isFinite));
  });
}

test("models", async () => {
  const ids = (await all(await sdk.models.list())).map((one) => one.id);
  assert.ok(ids.includes(model));
  assert.equal((await sdk.models.retrieve(model)).id, model);
});

test("a batch from its file to its results", async () => {
  const rows = [0, 1, 2, 3, 4, 5].map((n) => ({
    custom_id: `r${n}`,
    method: "POST",
    url: "/v1/chat/completions",
    body: { ...chat, max_tokens: 4 },
  }));
  const content = rows.map((row) => JSON.stringify(row)).join("\n");
  const file = await sdk.files.create({ file: await toFile(Buffer.from(content), "in.jsonl"), purpose: "batch" });
  const asked = { input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" };
  const once = { headers: { "idempotency-key": `once ${file.id}` } };
  const made = await sdk.batches.create(asked, once);
  assert.equal((await sdk.batches.create(asked, once)).id, made.id);

  const done = await eventually(async () => {
    const seen = await sdk.batches.retrieve(made.id);
    return ["completed", "failed", "expired", "cancelled"].includes(seen.status) && seen;
  });
  assert.equal(done.status, "completed");
  assert.deepEqual([done.request_counts.total, done.request_counts.completed], [6, 6]);
  const output = await (await sdk.files.content(done.output_file_id)).text();
  const ids = output.trim().split("\n").map((line) => JSON.parse(line).custom_id);
  assert.deepEqual(ids.sort(), rows.map((row) => row.custom_id));
  assert.ok((await all(await sdk.batches.list({ limit: 1 }))).some((one) => one.id === made.id));
  assert.ok((await all(await sdk.files.list({ limit: 1 }))).some((one) => one.id === file.id));
  assert.equal((await sdk.batches.cancel(made.id)).status, "completed");
  assert.equal(await (await sdk.files.content(file.id)).text(), content);
  assert.ok((await sdk.files.delete(file.id)).deleted);
});
