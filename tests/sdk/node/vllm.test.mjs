// Tools and schemas, which need a real engine.
import assert from "node:assert/strict";
import { test } from "node:test";
import { all, client, model, textOf } from "./front.mjs";

const sdk = client();
const messages = [{ role: "user", content: "What is the capital of France?" }];
const how = { model, messages, temperature: 0 };
const schema = {
  type: "object",
  properties: { city: { type: "string", maxLength: 20 }, people: { type: "integer" } },
  required: ["city", "people"],
  additionalProperties: false,
};
const tools = [{ type: "function", function: { name: "look_up", parameters: schema } }];

test("a chat and its stream", async () => {
  const whole = await sdk.chat.completions.create({ ...how, max_tokens: 24 });
  const chunks = await all(await sdk.chat.completions.create({ ...how, max_tokens: 24, stream: true }));
  assert.equal(textOf(chunks), whole.choices[0].message.content);
  assert.match(textOf(chunks), /Paris/);
});

test("a tool", async () => {
  const body = { ...how, max_tokens: 80, tools, tool_choice: "required" };
  const [call] = (await sdk.chat.completions.create(body)).choices[0].message.tool_calls;
  assert.equal(call.function.name, "look_up");
  JSON.parse(call.function.arguments);
  const [streamed] = (await sdk.chat.completions.stream(body).finalMessage()).tool_calls;
  assert.equal(streamed.function.arguments, call.function.arguments);
});

test("a schema", async () => {
  const wanted = { type: "json_schema", json_schema: { name: "city", schema, strict: true } };
  const answer = await sdk.chat.completions.create({ ...how, max_tokens: 80, response_format: wanted });
  const city = JSON.parse(answer.choices[0].message.content);
  assert.ok(Number.isInteger(city.people));
  assert.ok(city.city.length <= 20);
});
