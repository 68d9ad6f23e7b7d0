// Batches with their progress, and jobs that were set aside.

import { Bar, KeyedList, attribute, el, text } from "./dom.js";
import { count, moment, seconds } from "./format.js";

const LEVELS = { completed: "good", failed: "bad", expired: "bad", cancelled: "warn", cancelling: "warn" };

function batch({ id, tenant }) {
  const bar = new Bar(`progress of ${id}`);
  const [model, state] = [el("div", { class: "dim" }), el("td")];
  const [rows, failed, left] = [1, 2, 3].map(() => el("td", { class: "number" }));
  const name = el("th", { scope: "row" }, id, model);
  return {
    node: el("tr", {}, name, state, el("td", {}, bar.node), rows, failed, left),
    update(now) {
      const done = now.completed + now.failed;
      text(model, [tenant, now.model].filter(Boolean).join(", "));
      text(state, now.status.replace("_", " "));
      attribute(state, "class", `state ${LEVELS[now.status] ?? ""}`);
      bar.set(now.rows ? done / now.rows : 0, false);
      text(rows, now.rows ? `${count(done)} of ${count(now.rows)}` : "");
      text(failed, count(now.failed));
      text(left, now.ended_ms ? "ended" : seconds(now.left_s));
    },
  };
}

export function batches(parent, model) {
  const list = new KeyedList(parent, batch);
  return () => list.show(model.look.batches, (one) => `${one.tenant}/${one.id}`);
}

function setAside({ id, code, model, at_ms: at }) {
  const button = el("button", { type: "button", class: "link", title: id }, id);
  const name = el("th", { scope: "row" }, button);
  const cells = [code.replaceAll("_", " "), model, moment(at)].map((words) => el("td", {}, words));
  return { node: el("tr", {}, name, ...cells) };
}

export function dead(parent, model, onJob) {
  const list = new KeyedList(parent, setAside);
  parent.addEventListener("click", ({ target }) => target.matches("button") && onJob(target.title));
  return () => list.show(model.look.set_aside, (one) => `${one.id}/${one.at_ms}`);
}
