// A job's tokens as they come.

import { events } from "./stream.js";

function said({ choices }) {
  const [choice] = choices ?? [];
  return choice?.delta?.content ?? choice?.text ?? "";
}

/** Show the job's text in `node` as it comes; `tell(line)` says what people should know of it. */
export async function follow(id, node, tell, signal) {
  const path = `v1/requests/${encodeURIComponent(id)}/stream`;
  node.setAttribute("aria-busy", "true");
  // One text node that grows: what is selected stays so.
  const shown = node.appendChild(document.createTextNode(""));
  try {
    for await (const { name, data } of events(path, signal)) {
      if (data === "[DONE]") return tell("");
      const message = JSON.parse(data);
      if (name === "restart") {
        shown.data = "";
        tell("It began anew.");
      } else if (name === "truncated") tell("The tokens before these are kept no more.");
      else if (name === "reconnect") return tell("The gateway closes: show it again.");
      else if (message.error) return tell(message.error.message);
      else shown.appendData(said(message));
    }
    tell("The stream broke off.");
  } catch (error) {
    if (error.name !== "AbortError") tell(error.status === 404 ? "This key may not read its text." : error.message);
  } finally {
    node.setAttribute("aria-busy", "false");
  }
}
