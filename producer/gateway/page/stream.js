// Server-sent events read by `fetch`: an `EventSource` can send no key.

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const KEY = "tokenfleet-key";

export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => (value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY)),
};

const root = new URL("../../", import.meta.url);

/** Ask the gateway for one of its paths, with the key where there is one. */
export async function ask(path, signal) {
  const headers = key.get() ? { authorization: `Bearer ${key.get()}` } : {};
  const answer = await fetch(new URL(path, root), { headers, signal, cache: "no-store" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new Refused(answer.status, told.error?.message ?? `the gateway answered ${answer.status}`);
}

/** Each event of a stream as `{name, data}`. Ends with it. */
export async function* events(path, signal) {
  const answer = await ask(path, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    // A large event comes in many pieces: they are joined once, when its end is there.
    for (let pieces = [], tail = ""; ;) {
      const { done, value } = await reader.read();
      if (done) return;
      pieces.push(value);
      if (!(tail + value).includes("\n\n")) {
        tail = value.slice(-1);
        continue;
      }
      const blocks = pieces.join("").split("\n\n");
      const rest = blocks.pop();
      pieces = rest ? [rest] : [];
      tail = rest.slice(-1);
      for (const block of blocks) {
        const event = parsed(block);
        if (event.data) yield event;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(block) {
  const event = { name: "", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("data: ")) event.data += line.slice(6);
  }
  return event;
}
